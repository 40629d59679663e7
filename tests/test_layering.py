"""The design's rules about who may know whom, held by reading the source of every module.

Nothing is imported to find out, but for the last test. Each rule is a function from a source tree
to lines that say what breaks it; each is tried on a small tree that breaks it, so it can fail.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A module imports its own package and what has a lower number; `api` and `ui` share one.
ORDER = {
    "": 0,
    "core": 0,
    "errors": 0,
    "settings": 0,
    "codec": 0,
    "facts": 0,
    "prediction": 0,
    "rates": 0,
    "tensors": 0,
    "text": 0,
    "traits": 0,
    "hardware": 1,
    "checkpoint": 2,
    "plan": 3,
    "model": 4,
    "load": 5,
    "runtime": 6,
    "engine": 7,
    "api": 8,
    "ui": 8,
    "cli": 9,
    "app": 10,
    "__main__": 10,
}
BASE = frozenset(unit for unit, number in ORDER.items() if number == 0)
TORCH = frozenset({"torch", "triton", "torchvision", "torchaudio", "bitsandbytes", "accelerate"})
WORKER_SIDE = re.compile(
    r"local_tp\.(model|load|hardware\.measuring\.child\w*|runtime\.(worker|collectives)\w*)(\..*)?"
)
APP_SIDE = re.compile(
    r"local_tp\.(hardware(?!\.measuring\.child)|checkpoint|plan|engine|api|cli)(\..*)?"
    r"|local_tp\.runtime\.crew|ui(\..*)?|app"
)
# Programs that hardware runs but never imports, which measure the model's own collectives.
CHILD = re.compile(r"local_tp\.hardware\.measuring\.child_\w+")
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"})
DATA = frozenset({".toml", ".json", ".jinja", ".md", ".txt"})
CODE = frozenset({"", ".py", ".pyi", ".sh", ".ps1", ".bat", ".js", ".css", ".html", ".c", ".h"})
LINES = 400


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    path: str
    package: str  # what a relative import starts from
    tree: ast.Module


Modules = dict[str, Module]
Rule = Callable[[Path], list[str]]


def read(root: Path) -> Modules:
    """Every module of the program that exists under `root`, by its dotted name."""
    modules = {}
    for path in sorted([*root.glob("local_tp/**/*.py"), *root.glob("ui/**/*.py"), root / "app.py"]):
        if not path.exists():
            continue
        relative = path.relative_to(root)
        parts = relative.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        package = ".".join(parts[:-1])
        tree = ast.parse(path.read_text(encoding="utf-8"), str(relative))
        modules[name] = Module(name, str(relative), package, tree)
    return modules


def nodes(tree: ast.AST, when_imported: bool) -> Iterator[ast.AST]:
    """All nodes, or only those that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if when_imported and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if when_imported and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from nodes(node, when_imported)


def imports(module: Module, when_imported: bool = False) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import; `from a import b` is `a.b`, whatever b may be."""
    for node in nodes(module.tree, when_imported):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            start = module.package.split(".")[: 1 - node.level or None] if node.level else []
            base = [*start, *([node.module] if node.module else [])]
            for alias in node.names:
                yield node.lineno, ".".join([*base, alias.name])


def is_ours(name: str) -> bool:
    return name.split(".")[0] in ("local_tp", "ui", "app")


def is_torch(name: str) -> bool:
    return name.split(".")[0] in TORCH or re.match(r"safetensors\.torch\b", name) is not None


def unit(name: str) -> str:
    """The package or top module that a dotted name of ours belongs to; "" is `local_tp` itself."""
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] if first == "local_tp" else first


def order(root: Path) -> list[str]:
    """Imports go to the left, or stay in their package."""
    problems = []
    for module in read(root).values():
        own = unit(module.name)
        if own not in ORDER:
            problems.append(f"{module.path}: {own} has no place in the import order")
            continue
        for line, name in imports(module):
            target = unit(name)
            if not is_ours(name) or target == own or {target, own} <= BASE:
                continue
            if target == "model" and CHILD.fullmatch(module.name):
                continue
            if ORDER.get(target, len(ORDER)) >= ORDER[own]:
                problems.append(f"{module.path}:{line}: {own or 'local_tp'} imports {target}")
    return problems


def torch_has_its_place(root: Path) -> list[str]:
    """Only the workers' side names torch, inside functions too."""
    return [
        f"{module.path}:{line}: imports {name}"
        for module in read(root).values()
        if not WORKER_SIDE.fullmatch(module.name)
        for line, name in imports(module)
        if is_torch(name)
    ]


def torch_is_not_reached(root: Path) -> list[str]:
    """Importing a module of the app's side does not import torch through others of ours."""
    modules = read(root)
    problems = []
    for start in modules:
        if not APP_SIDE.fullmatch(start):
            continue
        seen = {start}
        chains: list[tuple[str, ...]] = [(start,)]
        while chains:
            chain = chains.pop(0)
            reached = {name for _, name in imports(modules[chain[-1]], when_imported=True)}
            if found := sorted(filter(is_torch, reached)):
                problems.append(" -> ".join([*chain, found[0]]))
                break
            for name in sorted(reached | {chain[-1]}):
                parts = name.split(".")
                for end in range(1, len(parts) + 1):  # a package runs before what is in it
                    step = ".".join(parts[:end])
                    if step in modules and step not in seen:
                        seen.add(step)
                        chains.append((*chain, step))
    return problems


def plan_is_pure(root: Path) -> list[str]:
    """The planner imports the standard library and local_tp, nothing else."""
    return [
        f"{module.path}:{line}: imports {name}"
        for module in read(root).values()
        if unit(module.name) == "plan"
        for line, name in imports(module)
        if name.split(".")[0] not in sys.stdlib_module_names and not is_ours(name)
    ]


def settings_reads_the_environment(root: Path) -> list[str]:
    """No other module touches the process's environment variables."""
    problems = []
    for module in read(root).values():
        if module.name == "local_tp.settings":
            continue
        system = {"os"}
        for node in nodes(module.tree, when_imported=False):
            if isinstance(node, ast.Import):
                system |= {a.asname for a in node.names if a.name == "os" and a.asname}
        for node in nodes(module.tree, when_imported=False):
            named = isinstance(node, ast.ImportFrom) and node.module == "os"
            if isinstance(node, ast.ImportFrom) and named:
                used = {alias.name for alias in node.names} & ENVIRONMENT
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used = {node.attr} & ENVIRONMENT if node.value.id in system else set()
            else:
                continue
            problems += [f"{module.path}:{node.lineno}: os.{name}" for name in sorted(used)]
    return problems


def presets_are_data(root: Path) -> list[str]:
    """The tables that ship beside the code hold no code."""
    return [
        f"{path.relative_to(root)}: not data"
        for path in sorted(root.glob("presets/**/*"))
        if path.is_file() and path.suffix not in DATA
    ]


def files_are_short(root: Path) -> list[str]:
    """A file of more than 400 lines has a second job inside it."""
    problems = []
    for folder in ("local_tp", "ui", "scripts", "tests"):
        for path in sorted((root / folder).glob("**/*")):
            if path.is_file() and path.suffix in CODE:
                count = len(path.read_text(encoding="utf-8").splitlines())
                if count > LINES:
                    problems.append(f"{path.relative_to(root)}: {count} lines")
    return problems


RULES: tuple[Rule, ...] = (
    order,
    torch_has_its_place,
    torch_is_not_reached,
    plan_is_pure,
    settings_reads_the_environment,
    presets_are_data,
    files_are_short,
)


def name_of(value: object) -> str:
    return str(getattr(value, "__name__", value))


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_the_program_keeps(rule: Rule) -> None:
    assert rule(ROOT) == []


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


SOUND = {
    "local_tp/__init__.py": "",
    "local_tp/core.py": "import json",
    "local_tp/codec.py": "from local_tp import core, errors",
    "local_tp/settings.py": "import os\nHOME = os.environ.get('HOME')",
    "local_tp/hardware/probe.py": "import numpy\nfrom local_tp.core import Rig",
    "local_tp/hardware/measuring/child_sum.py": "import torch\nfrom local_tp.model import decoder",
    "local_tp/plan/search.py": "import math\nfrom . import layout\nfrom ..core import Plan",
    "local_tp/plan/layout.py": "from local_tp.checkpoint.formats import Format",
    "local_tp/model/decoder.py": "import torch\nfrom safetensors.torch import load",
    "local_tp/runtime/crew.py": "import os\nPID = os.getpid()\ndef f():\n    from . import worker",
    "local_tp/runtime/worker.py": "import torch\nfrom local_tp.model import decoder",
    "local_tp/runtime/collectives.py": "import torch",
    "local_tp/engine/engine.py": "from local_tp.runtime.crew import PID",
    "local_tp/api/server.py": "from local_tp.engine import engine",
    "ui/page.py": "from local_tp.engine import engine\nfrom ui import chat",
    "ui/chat.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import gradio",
    "local_tp/cli/main.py": "import ui.page\nfrom local_tp.api import server",
    "app.py": "from local_tp.cli.main import main",
    "presets/gpus.toml": "",
    "tests/test_long.py": "\n" * 400,
}


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_sound_tree_keeps(rule: Rule, tmp_path: Path) -> None:
    assert rule(write(tmp_path, SOUND)) == []


def test_a_tree_of_which_little_exists_yet(tmp_path: Path) -> None:
    write(tmp_path, {"local_tp/engine/engine.py": "from local_tp.runtime.crew import Crew"})
    assert [problem for rule in RULES for problem in rule(tmp_path)] == []


@pytest.mark.parametrize(
    ("rule", "path", "source", "problem"),
    [
        (order, "local_tp/plan/x.py", "from local_tp.model import y", ":1: plan imports model"),
        (order, "local_tp/plan/x.py", "from ..load.y import z", ":1: plan imports load"),
        (order, "local_tp/plan/x.py", "from local_tp import engine", ":1: plan imports engine"),
        (order, "local_tp/core.py", "import local_tp.plan", ":1: core imports plan"),
        (order, "local_tp/__init__.py", "from . import api", ":1: local_tp imports api"),
        (order, "local_tp/api/x.py", "def f():\n    import ui.page", ":2: api imports ui"),
        (order, "ui/x.py", "\nfrom local_tp.api import server", ":2: ui imports api"),
        (order, "local_tp/cli/x.py", "import app", ":1: cli imports app"),
        (order, "local_tp/load/x.py", "import local_tp.other", ":1: load imports other"),
        (
            order,
            "local_tp/hardware/x.py",
            "from local_tp.model import y",
            ":1: hardware imports model",
        ),
        (
            order,
            "local_tp/hardware/measuring/child_x.py",
            "import local_tp.load",
            ":1: hardware imports load",
        ),
        (order, "local_tp/other.py", "", ": other has no place in the import order"),
        (torch_has_its_place, "ui/x.py", "def f():\n    import torch.nn", ":2: imports torch.nn"),
        (torch_has_its_place, "local_tp/runtime/crew.py", "import torch", ":1: imports torch"),
        (torch_has_its_place, "local_tp/runtime/plan.py", "import triton", ":1: imports triton"),
        (
            torch_has_its_place,
            "local_tp/checkpoint/x.py",
            "from safetensors.torch import load_file",
            ":1: imports safetensors.torch.load_file",
        ),
        (plan_is_pure, "local_tp/plan/x.py", "import numpy as np", ":1: imports numpy"),
        (
            settings_reads_the_environment,
            "local_tp/engine/x.py",
            "import os as system\nsystem.environ['A']",
            ":2: os.environ",
        ),
        (settings_reads_the_environment, "app.py", "from os import getenv", ":1: os.getenv"),
        (presets_are_data, "presets/sampling.py", "", ": not data"),
        (files_are_short, "scripts/start", "\n" * 401, ": 401 lines"),
        (files_are_short, "ui/page.css", "\n" * 500, ": 500 lines"),
    ],
)
def test_a_rule_finds_what_breaks_it(
    rule: Rule, path: str, source: str, problem: str, tmp_path: Path
) -> None:
    assert rule(write(tmp_path, SOUND | {path: source})) == [path + problem]


@pytest.mark.parametrize(
    ("files", "chain"),
    [
        (
            {"local_tp/runtime/crew.py": "from local_tp.runtime import worker"},
            "local_tp.runtime.crew -> local_tp.runtime.worker -> torch",
        ),
        (
            {"local_tp/runtime/__init__.py": "try:\n    from .collectives import x\nfinally: 1"},
            "local_tp.engine.engine -> local_tp.runtime -> local_tp.runtime.collectives -> torch",
        ),
        (
            {"local_tp/hardware/probe.py": "from local_tp.hardware.measuring import child_sum"},
            "local_tp.hardware.probe -> local_tp.hardware.measuring.child_sum -> torch",
        ),
        (
            {"local_tp/engine/engine.py": "from local_tp.model.decoder import Decoder"},
            "local_tp.api.server -> local_tp.engine.engine -> local_tp.model.decoder",
        ),
        ({"ui/chat.py": "class A:\n    import torch"}, "ui.page -> ui.chat -> torch"),
    ],
)
def test_torch_is_found_through_others(files: dict[str, str], chain: str, tmp_path: Path) -> None:
    problems = torch_is_not_reached(write(tmp_path, SOUND | files))
    assert any(problem.startswith(chain) for problem in problems), problems


def test_the_apps_side_really_loads_without_torch() -> None:
    """What the source cannot show: a third party that imports torch of its own accord."""
    names = sorted(name for name in read(ROOT) if APP_SIDE.fullmatch(name))
    program = (
        "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    )
    program += "    assert 'torch' not in sys.modules, f'{name} loads torch'\n"
    done = subprocess.run(
        [sys.executable, "-c", program, *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
