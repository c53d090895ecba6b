"""The page of other chats' complaints is true: every test it names exists, and every case has one or a reason."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "chat-cases.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
NAMED = re.compile(r"`(tests/test_\w+\.py)::(test_\w+)`")
REASON = "does not apply: "
SURVEY = 60
"""Cases of the survey's first six parts."""


@cache
def defined_in(file: str) -> frozenset[str]:
    """The tests that a file defines."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def missing(cell: str) -> list[str]:
    """The tests named in a cell that do not exist."""
    return [
        f"{file}::{name}"
        for file, name in NAMED.findall(cell)
        if not (ROOT / file).exists() or name not in defined_in(file)
    ]


def test_no_case_is_left_out_and_none_stands_twice() -> None:
    numbers = [int(number) for number, _, _ in ROWS]
    assert len(numbers) == len(re.findall(r"^\| \d", PAGE, re.MULTILINE)), "a row that cannot be read"
    assert numbers == sorted(set(numbers))
    assert len(numbers) == SURVEY


@pytest.mark.parametrize(("number", "cell"), [(number, cell) for number, _, cell in ROWS])
def test_each_case_has_its_tests_or_a_reason(number: str, cell: str) -> None:
    if cell.startswith(REASON):
        assert len(cell) > len(REASON) + 10
        return
    assert NAMED.sub("", cell).replace("<br>", "").strip() == "", f"case {number}: not a list of tests"
    assert NAMED.findall(cell)
    assert missing(cell) == [], f"case {number}"


def test_a_test_that_does_not_exist_is_noticed() -> None:
    assert missing("`tests/test_docs_cases.py::test_of_nothing`<br>`tests/test_nowhere.py::test_it`") == [
        "tests/test_docs_cases.py::test_of_nothing",
        "tests/test_nowhere.py::test_it",
    ]
