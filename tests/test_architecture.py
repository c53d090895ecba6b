"""Rules of the code base that a reader could not check by hand: who imports what, and how large a module is."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "learner", "store")
TRAINING = {"torch", "transformers", "peft", "sentence_transformers", "datasets", "trl"}
HEAVY = TRAINING | {
    "gguf",
    "httpx",
    "jinja2",
    "llama_cpp",
    "numpy",
    "pandas",
    "platformdirs",
    "sqlite3",
    "sqlite_utils",
    "starlette",
    "textual",
    "uvicorn",
}
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    script = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=120, check=True
    )
    return set(answer.stdout.splitlines()[-1].split())


def test_nothing_in_app_and_store_brings_torch() -> None:
    names = [name_of(path) for path in MODULES if not path.is_relative_to(ROOT / "learner")]
    statement = "import importlib\n" + "\n".join(
        f"importlib.import_module({name!r})" for name in names if not name.endswith("__main__")
    )
    assert not imported_by(statement) & TRAINING


@pytest.mark.parametrize("module", ["app.cli.ask", "app.cli.main"])
def test_asking_imports_click_and_the_client_alone(module: str) -> None:
    assert not imported_by(f"import {module}") & HEAVY


@pytest.mark.parametrize("module", ["app.cli.feedback", "app.cli.adapters", "app.cli.learn", "app.service"])
def test_store_commands_load_no_engine_and_no_widgets(module: str) -> None:
    assert not imported_by(f"import {module}") & (HEAVY - {"sqlite3"})


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_says_why_and_stays_readable(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source))
    assert docstring, "the first paragraph of a module says why it is so"
    assert source.count("\n") <= 600, "a module of more than 600 lines does more than one thing"


def test_lock_names_versions_and_nothing_of_one_machine() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = re.compile(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*")
    assert [line for line in lines if not line.startswith("#") and not pinned.fullmatch(line)] == []


def test_lock_holds_everything_that_is_installed_for_us() -> None:
    lock = {
        canonicalize_name(line.partition("==")[0])
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    }
    assert closure(declared()) - lock == set()


def declared() -> set[str]:
    """The distributions that pyproject.toml asks for, with the test extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {*project["dependencies"], *project["optional-dependencies"]["test"]}


def closure(requirements: set[str]) -> set[str]:
    """Everything those need in turn, as the installed packages' own metadata says."""
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            needed = [Requirement(text) for text in importlib.metadata.requires(name) or []]
            waiting += [
                each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in seen}
