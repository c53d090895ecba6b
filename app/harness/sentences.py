"""Sentences, words and lists of a reply, as guards count and cut them: by marks, since a parser of language is weights.

A sentence ends at a mark that white space follows, or at a full-width one, or at the end of a line; a full stop after
a digit, one letter or a known abbreviation ends none. What stands between fences is code: it is no sentence and is
never changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_ABBREVIATIONS = frozenset("e.g i.e etc vs mr mrs ms dr st no approx a.m p.m u.s".split())
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？]+[”’」』）]*|\n+")
_ITEM = re.compile(r"^[ \t]*(?:[-*+•‣]|\d{1,2}[.)]|[a-zA-Z][.)])[ \t]+(?=\S)", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?^ {0,3}\1[ \t]*$", re.MULTILINE | re.DOTALL)


def sentences(text: str) -> list[str]:
    """The sentences of a text with the white space that follows them: joined they are the text again."""
    found: list[str] = []
    start = 0
    for mark in _END.finditer(text):
        if mark[0].startswith(".") and _goes_on(text[start : mark.start()]):
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
    return _FENCE.sub("", text)


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """A text with everything but its code changed."""
    made, last = [], 0
    for block in _FENCE.finditer(text):
        made += [change(text[last : block.start()]), block[0]]
        last = block.end()
    return "".join((*made, change(text[last:])))


def code_blocks(text: str) -> list[str]:
    """What stands between the fences of a text."""
    return ["\n".join(block[0].split("\n")[1:-1]) for block in _FENCE.finditer(text)]


def fenced(text: str) -> list[str]:
    """The blocks of code of a text, their fences included."""
    return [block[0] for block in _FENCE.finditer(text)]


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


def _goes_on(before: str) -> bool:
    word = before.rsplit(None, 1)[-1].lstrip("(\"'“") if before.split() else ""
    initial = len(word) == 1 and word.isascii() and word.isupper() and word != "I"
    # "1." opens an item of a list; "in 1969." ends a sentence.
    return word.lower() in _ABBREVIATIONS or initial or (word.isdigit() and before.strip() == word)
