"""Short titles by the model itself: what is asked for them, and which answers will do.

A title is a side call: incognito, so it is no conversation and no lesson; on the base model, so that what was
learned about replies does not colour it; and after everything else that waits. Small models often answer instead of
naming, so an answer that does not look like a title is dropped, and the first line of the question stays.
"""

from __future__ import annotations

import re

from app.host.events import TurnRequest

LONGEST = 48
MOST_WORDS = 8
_QUESTION, _REPLY = 400, 300
"""Characters of each that the model is shown: a title needs the subject, not the whole."""

_LABEL = re.compile(
    r"^(?:sure|certainly|okay|here(?:'s| is)\b[^:]*|title|topic|subject)\s*[:!,.-]+\s*", re.IGNORECASE
)
_QUOTES = "\"'“”‘’«»„*_`#"
_EXAMPLES = (
    ("How long do I boil an egg so that the yolk stays soft?", "Soft-boiled eggs"),
    ("Write a Python function that counts the words of a text", "Counting words in Python"),
)


def request(question: str, reply: str) -> TurnRequest:
    """The side call that asks for the title of an exchange."""
    turns: list[dict[str, str]] = [
        {
            "role": "system",
            "content": "You name conversations. Answer with a title of two to five words, nothing else.",
        }
    ]
    for asked, title in _EXAMPLES:
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": title}]
    text = question[:_QUESTION]
    if len(question.split()) < MOST_WORDS:
        # Too little to name it by: what was answered says more.
        text = f"{text}\n\n{reply[:_REPLY]}"
    return TurnRequest(
        text=text,
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
    title = _LABEL.sub("", lines[0].strip().strip(_QUOTES).strip()).strip(_QUOTES + " .:;,-")
    title = " ".join(title.split())
    if not title or len(title) > LONGEST or len(title.split()) > MOST_WORDS:
        return None
    if len(title) < 2 or not any(letter.isalpha() for letter in title):
        return None
    return title[0].upper() + title[1:]
