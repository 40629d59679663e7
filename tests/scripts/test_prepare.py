"""What a start installs and what it leaves alone, and how it recovers from damage."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from launcher import environment as place
from launcher import prepare
from launcher.environment import Environment, SetupError, Stamp
from launcher.torch_build import Hardware
from launcher_fakes import FakeOutside, put

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fake Python is a shell script")

INDEX = "https://download.pytorch.org/whl/cpu"
FIRST = [
    "make",
    f"ask {INDEX}/torch/",
    f"pip torch==2.13.0+cpu --extra-index-url {INDEX}",
    "pip -e .",
]


def test_the_second_start_does_nothing_at_all(checkout: Environment) -> None:
    fake = FakeOutside()
    assert fake.run(checkout) == FIRST
    fake.said.clear()
    assert fake.run(checkout) == []
    assert fake.said == []


def test_an_unreachable_index_gives_way_to_the_ordinary_registry(checkout: Environment) -> None:
    fake = FakeOutside()
    fake.reachable = False
    assert fake.run(checkout)[2:] == ["pip torch==2.13.0", "pip -e ."]
    assert any("cannot be used now" in line for line in fake.said)


def test_an_index_that_does_not_deliver_gives_way_too(checkout: Environment) -> None:
    fake = FakeOutside()
    fake.failing = ("--extra-index-url",)
    assert fake.run(checkout)[3:] == ["pip torch==2.13.0", "pip -e ."]
    assert place.is_ready(checkout, fake.mark, ())


def test_extras_come_on_top_and_stay(checkout: Environment) -> None:
    fake = FakeOutside()
    fake.run(checkout)
    assert fake.run(checkout, "test") == ["pip -e .[test]"]
    assert fake.run(checkout) == []
    assert fake.run(checkout, "bench") == ["pip -e .[bench,test]"]


def test_an_unknown_extra_is_refused_before_anything_is_made(checkout: Environment) -> None:
    with pytest.raises(SetupError, match="choose from test, bench"):
        FakeOutside().run(checkout, "tests")
    assert not checkout.folder.exists()


def test_changed_pins_are_installed_into_the_same_environment(checkout: Environment) -> None:
    fake = FakeOutside()
    fake.run(checkout, "test")
    put(checkout.root, "scripts/constraints.txt", "torch==2.13.0\nnumpy==2.4.6\n")
    assert fake.run(checkout) == [*FIRST[1:3], "pip -e .[test]"]


def test_a_new_driver_of_the_same_kind_installs_nothing(checkout: Environment) -> None:
    fake = FakeOutside()
    fake.run(checkout)
    fake.mark = "another mark"
    assert fake.run(checkout) == []
    assert place.is_ready(checkout, "another mark", ())


def test_a_new_card_of_another_kind_makes_the_environment_again(checkout: Environment) -> None:
    fake = FakeOutside()
    fake.run(checkout)
    fake.hardware, fake.mark = Hardware("linux", True, 580, ((8, 6),)), "a card"
    calls = fake.run(checkout)
    assert calls[0] == "make"
    assert "pip torch==2.13.0+cu130 --extra-index-url https://download.pytorch.org/whl/cu130" in (
        calls
    )


def test_a_failed_install_is_taken_up_again_without_remaking(checkout: Environment) -> None:
    fake = FakeOutside()
    fake.failing = ("-e",)
    with pytest.raises(SetupError, match="it fails"):
        fake.run(checkout)
    assert not checkout.stamp.exists()
    fake.failing = ()
    assert fake.run(checkout) == FIRST[1:]


def break_python(environment: Environment) -> None:
    environment.python.unlink()


def break_config(environment: Environment) -> None:
    environment.config.unlink()


def break_pip(environment: Environment) -> None:
    environment.python.write_text("#!/bin/sh\nexit 1\n", "utf-8")


def break_package(environment: Environment) -> None:
    put(environment.folder, "lib/python3.12/site-packages/torch-2.13.0.dist-info/METADATA")


def break_removal(environment: Environment) -> None:
    put(environment.folder, "lib/python3.12/site-packages/~orch/__init__.py")


def break_version(environment: Environment) -> None:
    config = environment.config.read_text("utf-8")
    environment.config.write_text(config.replace("3.12.1", "3.10.9"), "utf-8")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (break_python, "gone"),
        (break_config, "not finished"),
        (break_pip, "no working pip"),
        (break_package, "installation of torch was cut short"),
        (break_removal, "installation of orch was cut short"),
        (break_version, "made with Python 3.10.9"),
    ],
)
def test_a_damaged_environment_is_made_again(
    checkout: Environment, damage: Callable[[Environment], None], words: str
) -> None:
    fake = FakeOutside()
    fake.run(checkout)
    assert place.fault(checkout) is None
    damage(checkout)
    checkout.stamp.unlink()
    assert words in (place.fault(checkout) or "")
    assert fake.run(checkout) == FIRST
    assert place.fault(checkout) is None


def test_a_moved_checkout_is_noticed_by_its_stamp(checkout: Environment, tmp_path: Path) -> None:
    fake = FakeOutside()
    fake.run(checkout)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in (".venv", "scripts", "pyproject.toml"):
        shutil.move(checkout.root / name, moved / name)
    assert fake.run(Environment(moved))[0] == "make"


def test_a_stamp_that_is_not_whole_counts_as_none(checkout: Environment) -> None:
    checkout.folder.mkdir()
    stamp = Stamp("a", "b", "3.12.1", "", "cpu", ("test",))
    place.write_stamp(checkout, stamp)
    assert place.read_stamp(checkout) == stamp
    for content in ("", "{", "[]", '{"inputs": "a"}', '{"extras": [], "colour": "red"}'):
        checkout.stamp.write_text(content, "utf-8")
        assert place.read_stamp(checkout) is None


def test_two_starts_at_once_install_once(checkout: Environment) -> None:
    fake = FakeOutside()
    inside, go = threading.Event(), threading.Event()

    def slow(environment: Environment) -> None:
        inside.set()
        assert go.wait(10)
        fake._make(environment)

    def first() -> None:
        outside = replace(fake.outside(), make=slow)
        prepare.prepare(checkout.root, (), fake.said.append, outside)

    waits: list[str] = []

    def waiting(line: str) -> None:
        waits.append(line)
        go.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    prepare.prepare(checkout.root, (), waiting, fake.outside())
    thread.join()
    assert waits == ["another start is setting up; waiting for it"]
    assert fake.calls == FIRST


def test_the_system_drops_the_lock_of_a_killed_start(checkout: Environment) -> None:
    code = (
        "import sys, time; from pathlib import Path; from launcher import environment as place\n"
        "with place.locked(place.Environment(Path(sys.argv[1])), print):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(checkout.root)]
    with subprocess.Popen(command, cwd=ROOT / "scripts", stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        said: list[str] = []
        threading.Timer(0.3, holder.kill).start()
        with place.locked(checkout, said.append):
            assert said == ["another start is setting up; waiting for it"]


def test_clearing_keeps_the_lock_and_does_not_follow_links(checkout: Environment) -> None:
    put(checkout.root, "precious/file")
    put(checkout.folder, "lib/file")
    put(checkout.folder, "setup.lock")
    (checkout.folder / "link").symlink_to(checkout.root / "precious")
    place.clear(checkout)
    assert [entry.name for entry in checkout.folder.iterdir()] == ["setup.lock"]
    assert (checkout.root / "precious/file").exists()


def test_a_python_without_ensurepip_asks_for_pip(
    checkout: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Environment] = []
    checkout.folder.mkdir()
    put(checkout.folder, "left/over")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    place.make(checkout, asked.append)
    version = ".".join(str(part) for part in sys.version_info[:3])
    assert asked == [checkout]
    assert place.python_version(checkout) == version
    assert place.fault(checkout) == "it has no working pip"
    assert not (checkout.folder / "left").exists()


def test_the_remedy_names_the_package_of_this_python(tmp_path: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    put(tmp_path, "os-release", "ID=ubuntu\nID_LIKE=debian\n")
    assert f"sudo apt install python{version}-venv" in place.venv_remedy(tmp_path / "os-release")
    assert "python.org" in place.venv_remedy(tmp_path / "none")


def test_torch_is_pinned_in_the_real_project() -> None:
    real = Environment(ROOT)
    version = place.torch_version(real)
    assert f"torch=={version}\n" in real.constraints.read_text("utf-8")
    place.check_extras(real, ("test",))
