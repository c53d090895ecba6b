"""Sentences, words and lists of a reply, as guards count and cut them: by marks, since a parser of language is weights.

A sentence ends at a mark that white space follows, or at a full-width one, or at the end of a line; a full stop after
a digit, one letter or a known abbreviation ends none. What stands between fences is code: it is no sentence and is
never changed. A reply can be long and be nothing but marks: everything here reads it a fixed number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest

_ABBREVIATIONS = frozenset("e.g i.e etc vs mr mrs ms dr st no approx a.m p.m u.s".split())
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s|$)|[。！？]+[”’」』）]*|\n+")
_ITEM = re.compile(r"^[ \t]*(?:[-*+•‣]|\d{1,2}[.)]|[a-zA-Z][.)])[ \t]+(?=\S)", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_LONGEST_WORD = 40
"""Characters of what may be an abbreviation."""


def sentences(text: str) -> list[str]:
    """The sentences of a text with the white space that follows them: joined they are the text again."""
    found: list[str] = []
    start = 0
    for mark in _END.finditer(text):
        if mark[0].startswith(".") and _goes_on(text, start, mark.start()):
            continue
        end = mark.end()
        while end < len(text) and text[end].isspace():
            end += 1
        if text[start:end].strip():
            found.append(text[start:end])
            start = end
    if text[start:].strip():
        found.append(text[start:])
    return found


def words(text: str) -> list[str]:
    """Runs of what is not white space and holds a letter or digit."""
    return [word for word in text.split() if any(character.isalnum() for character in word)]


def is_list(text: str) -> bool:
    """Whether two lines or more of it are items of a list."""
    return len(_ITEM.findall(prose(text))) >= 2


def unlisted(text: str) -> str:
    """A text whose lists are sentences one after the other."""
    return outside_code(text, _unlisted)


def prose(text: str) -> str:
    """A text without its code."""
    return "".join(_around(text))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """A text with everything but its code changed."""
    made: list[str] = []
    for outside, code in zip_longest(_around(text), fenced(text), fillvalue=""):
        made += [change(outside), code]
    return "".join(made)


def code_blocks(text: str) -> list[str]:
    """What stands between the fences of a text."""
    return ["\n".join(block.split("\n")[1:-1]) for block in fenced(text)]


def fenced(text: str) -> list[str]:
    """The blocks of code of a text, their fences included."""
    return [text[start:end] for start, end in _blocks(text)]


def _around(text: str) -> list[str]:
    """What stands before, between and after the blocks of code: one more than there are blocks."""
    edges = [0, *(edge for block in _blocks(text) for edge in block), len(text)]
    return [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _blocks(text: str) -> list[tuple[int, int]]:
    """Where blocks of code begin and end. A fence closes with one of its kind, as long or longer; an open one is none.

    What may still close a fence is known of every line before any is opened: looking for it each time would take
    ten thousand open fences ten thousand times through the text.
    """
    lines = list(_FENCE.finditer(text))
    longest = [{"`": 0, "~": 0} for _ in range(len(lines) + 1)]
    for place in range(len(lines) - 1, -1, -1):
        longest[place] = dict(longest[place + 1])
        mark, rest = lines[place].groups()
        if not rest.strip(" \t"):
            longest[place][mark[0]] = max(longest[place][mark[0]], len(mark))
    found, place = [], 0
    while place < len(lines):
        mark, rest = lines[place].groups()
        opens = not (mark[0] == "`" and "`" in rest)
        begin, place = lines[place], place + 1
        if not opens or longest[place][mark[0]] < len(mark):
            continue
        while not _closes(lines[place], mark):
            place += 1
        found.append((begin.start(), lines[place].end()))
        place += 1
    return found


def _closes(line: re.Match[str], mark: str) -> bool:
    return line[1].startswith(mark) and not line[2].strip(" \t")


def _unlisted(text: str) -> str:
    made: list[str] = []
    for line in text.split("\n"):
        item = _ITEM.match(line)
        if item is None:
            made.append(line)
            continue
        said = line[item.end() :].strip()
        said += "" if said[-1:] in ".!?…:;,。！？" else "."
        while made and not made[-1].strip():
            made.pop()
        made.append(f"{made.pop().rstrip()} {said}" if made else said)
    return "\n".join(made)


def _goes_on(text: str, start: int, end: int) -> bool:
    """Whether the full stop behind ``text[start:end]`` belongs to its last word."""
    before = text[max(start, end - _LONGEST_WORD) : end]
    word = before.rsplit(None, 1)[-1].lstrip("(\"'“") if before.split() else ""
    initial = len(word) == 1 and word.isascii() and word.isupper() and word != "I"
    # "1." opens an item of a list; "in 1969." ends a sentence.
    alone = word.isdigit() and text[start:end].strip() == word
    return word.lower() in _ABBREVIATIONS or initial or alone
