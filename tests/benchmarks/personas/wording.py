"""What a person says: several ways for each thing, in English and Korean, drawn by the question so that a run repeats.

A benchmark whose people always complain in the same words measures whether those words are known. A complaint names
what was wrong in the person's own way (persona by persona, see `people`); thanks and small talk are everybody's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum


class Language(StrEnum):
    """The language a person writes in."""

    ENGLISH = "en"
    KOREAN = "ko"


THANKS: dict[Language, tuple[str, ...]] = {
    Language.ENGLISH: (
        "Thanks, that is just what I needed.",
        "Perfect, thank you!",
        "Great, that helps.",
        "Lovely, thanks a lot.",
        "That's exactly how I like it.",
        "Nice one, cheers.",
    ),
    Language.KOREAN: (
        "고마워요, 딱 제가 원하던 거예요.",
        "감사합니다, 도움이 됐어요.",
        "완벽해요, 고맙습니다!",
        "좋아요, 이렇게 답해 주니 좋네요.",
    ),
}

OPENINGS: dict[Language, tuple[str, ...]] = {
    Language.ENGLISH: ("", "", "No, ", "Hmm, ", "Sorry, but ", "Not like that: ", "Again, please: "),
    Language.KOREAN: ("", "", "아니요, ", "음, ", "그게 아니라, ", "다시요. "),
}


def draw(among: Sequence[str], *key: object) -> str:
    """One of several wordings, the same for the same key on every machine."""
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return among[int.from_bytes(digest[:4], "big") % len(among)]


def complaint(ways: Sequence[str], language: Language, *key: object) -> str:
    """A complaint in one of a person's ways, begun in one of everybody's."""
    opening = draw(OPENINGS[language], "opening", *key)
    said = draw(ways, "complaint", *key)
    return opening + (
        said[0].lower() + said[1:] if opening and opening[-2:] != ". " and said[1:2] != " " else said
    )


def thanks(language: Language, *key: object) -> str:
    """Thanks in one of everybody's ways."""
    return draw(THANKS[language], "thanks", *key)
