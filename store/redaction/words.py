"""The owner's own list: names, places, projects that no rule can know.

A word is matched whole, whatever its case and spacing and however its Korean letters are composed. What "whole"
means depends on the script: Latin words end where other letters begin, but a Korean particle may follow; Korean
words take particles and titles at their end; Chinese and Japanese have no borders to look for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from store.redaction.placeholders import Hit
from store.redaction.view import plain

_HANGUL: Final = r"\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"
_BORDERLESS: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
# A letter or digit of a script that separates its words. An underscore is how Markdown writes emphasis.
_LETTER: Final = rf"(?:(?![{_HANGUL}{_BORDERLESS}_])\w)"


class WordList:
    """A detector for the words of one owner."""

    def __init__(self, words: Sequence[str]) -> None:
        cleaned = {" ".join(plain(word).split()) for word in words}
        forms = {
            unicodedata.normalize(form, word) for word in cleaned for form in ("NFC", "NFD") if word.strip()
        }
        self._pattern = (
            re.compile(
                "|".join(map(_whole, sorted(forms, key=lambda form: (-len(form), form)))), re.IGNORECASE
            )
            if forms
            else None
        )

    def find(self, text: str) -> Iterator[Hit]:
        """Every one of the words in the view ``text``."""
        if self._pattern is None:
            return
        for match in self._pattern.finditer(text):
            word = " ".join(match[0].split()).casefold()
            yield Hit(*match.span(), unicodedata.normalize("NFC", word))


def _whole(word: str) -> str:
    inner = r"\s{1,9}".join(map(re.escape, word.split(" ")))
    before = rf"(?<!{_LETTER})" if _is_letter(word[0]) else ""
    after = rf"(?!{_LETTER})" if _is_letter(word[-1]) else ""
    if re.match(f"[{_HANGUL}]", word):
        before = rf"(?<![{_HANGUL}])"
    return f"{before}{inner}{after}"


def _is_letter(char: str) -> bool:
    return re.fullmatch(_LETTER, char) is not None
