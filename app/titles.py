"""Short titles by the model itself: what is asked for them, and which answers will do.

A title is a side call: incognito, so it is no conversation and no lesson; on the base model, so that what was
learned about replies does not colour it; and after everything else that waits. A small model often answers instead
of naming: with four examples of one form SmolLM2-135M named 4 of 7 questions well, with an instruction alone none. So
an answer that does not look like a title is dropped, and the first line of the question stays. A short question is
a good title itself.
"""

from __future__ import annotations

import re

from app.host.events import TurnRequest

SHORT_ENOUGH = 32
"""Characters of a question up to which it needs no other title."""

LONGEST = 48
MOST_WORDS = 8
_QUESTION = 400
"""Characters of the question that the model is shown: a title needs the subject, not the whole."""

_LABEL = re.compile(r"^(?:title|topic|subject)\s*[:.-]+\s*", re.IGNORECASE)
_QUOTES = "\"'“”‘’«»„*_`#"
_SENTENCE = re.compile(r"[,;!]|\b(?:I|I'm|you|you're|here's|it's)\b", re.IGNORECASE)
_FORM = "Topic of this message, in two to four words?\n\n{}"
_EXAMPLES = (
    ("How long do I boil an egg so that the yolk stays soft?", "Soft-boiled eggs"),
    ("Write a function that counts the words of a text", "Word count function"),
    ("My neighbour plays loud music at night, what can I do about it?", "Noisy neighbour"),
    ("Plan a weekend in Rome with my parents", "Weekend in Rome"),
)


def wanted(question: str) -> bool:
    """Whether a question is too long to be its own title."""
    return len(question.strip()) > SHORT_ENOUGH


def request(question: str) -> TurnRequest:
    """The side call that asks for the title of what began with a question."""
    turns: list[dict[str, str]] = []
    for asked, title in _EXAMPLES:
        turns += [{"role": "user", "content": _FORM.format(asked)}, {"role": "assistant", "content": title}]
    return TurnRequest(
        text=_FORM.format(" ".join(question[:_QUESTION].split())),
        incognito=True,
        incognito_turns=turns,
        base=True,
        aside=True,
        sampler={"temperature": 0.0, "max_tokens": 16},
    )


def clean(answer: str) -> str | None:
    """The title in an answer, or None where there is none."""
    lines = [line for line in answer.strip().splitlines() if line.strip()]
    if not lines:
        return None
    title = _LABEL.sub("", lines[0].strip().strip(_QUOTES).strip()).strip(_QUOTES + " .:-")
    title = " ".join(title.split())
    if not 2 <= len(title) <= LONGEST or len(title.split()) > MOST_WORDS:
        return None
    if _SENTENCE.search(title) or not any(letter.isalpha() for letter in title):
        return None
    return title[0].upper() + title[1:]
