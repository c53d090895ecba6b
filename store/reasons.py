"""One-key reasons for a thumbs-down. A bare thumbs-down teaches nothing good; with a reason it becomes a hint.

Measured on the default model: sixteen thumbs-down without a reason moved style adherence from 0.00 to 0.19
and made the text loop. The same model given the hint in its context follows it 0.62 of the time, and that is
what the learner distils. So the chat asks for a reason, one key each, and forces none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a reply was not good."""

    SHORTER = "shorter"
    LONGER = "longer"
    SIMPLER = "simpler"
    NO_LIST = "no_list"
    WRONG = "wrong"
    OTHER_LANGUAGE = "other_language"
    OWN_WORDS = "own_words"


@dataclass(frozen=True)
class ReasonText:
    """How a reason is shown and what it tells the teacher."""

    key: str
    label: str
    hint: str


REASONS: dict[Reason, ReasonText] = {
    Reason.SHORTER: ReasonText("1", "shorter", "Answer in one or two short sentences."),
    Reason.LONGER: ReasonText("2", "longer", "Answer in more detail, with an example."),
    Reason.SIMPLER: ReasonText("3", "simpler", "Use simple, everyday words and short sentences."),
    Reason.NO_LIST: ReasonText(
        "4", "no list", "Answer in plain sentences, without any list or bullet points."
    ),
    Reason.WRONG: ReasonText("5", "wrong", "The facts were wrong. Only say what you are sure of."),
    Reason.OTHER_LANGUAGE: ReasonText(
        "6", "other language", "Answer in the same language the user writes in."
    ),
    Reason.OWN_WORDS: ReasonText("7", "own words", ""),
}


def hint_for(reason: Reason, note: str | None) -> str | None:
    """The hint a reason gives the teacher; the owner's own note wins. None where neither says anything."""
    if note and note.strip():
        return note.strip()
    return REASONS[reason].hint or None
