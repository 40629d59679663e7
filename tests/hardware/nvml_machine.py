"""Builds the NVML stub, and runs code in a process that finds it as the machine's only NVML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from local_tp.codec import decode
from local_tp.hardware.live.nvidia import Nvidia

READ = """
import json, sys
from pathlib import Path
from local_tp.codec import encode
from local_tp.hardware.live.nvidia import read_nvidia
print(json.dumps(encode(read_nvidia(Path(sys.argv[1]), float(sys.argv[2])))))
assert "torch" not in sys.modules and "pynvml" not in sys.modules
"""


def build_stub(folder: Path) -> Path:
    """The folder that holds the stub library, compiled by the system's C compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("nvml_stub.c")
    library = folder / "libnvidia-ml.so.1"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", "-shared", "-fPIC", *warnings, "-o", library, source], check=True)
    return folder


def run_with(library: Path, program: str, *arguments: object, **stub: object) -> str:
    """What `program` prints; `stub` holds the stub's variables without their prefix."""
    settings = {f"NVML_STUB_{name.upper()}": str(value) for name, value in stub.items()}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | {"LD_LIBRARY_PATH": str(library)} | settings,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_with(library: Path, root: Path, seconds: float = 15.0, **stub: object) -> Nvidia:
    """The stub's machine as the program reads it."""
    found: Any = json.loads(run_with(library, READ, root, seconds, **stub))
    return decode(Nvidia, found)
