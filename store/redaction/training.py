"""What the learner may read of a unit: the conversation up to the reply, and what was said of it, redacted.

The numbers of the placeholders follow from this path alone, root first, and not from the conversation's other
branches. So what a unit teaches is a function of its own content: it is the same text after something elsewhere in
the conversation was forgotten, and two units on one branch agree on every name they share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from store import conversations, settings
from store.db import Store
from store.errors import UsageError
from store.redaction.placeholders import Placeholders
from store.redaction.redactor import Redactor
from store.redaction.version import REDACTION_VERSION
from store.types import Role
from store.units import Unit


@dataclass(frozen=True)
class RedactedTurn:
    """One message of the path."""

    role: Role
    text: str


@dataclass(frozen=True)
class RedactedUnit:
    """A learning unit as it may be trained on.

    ``turns`` is what the reply answered, root first, without the reply. A reply that equals the stored message's
    text held nothing to redact, so its recorded token ids still stand; otherwise it has to be tokenised anew.
    """

    turns: tuple[RedactedTurn, ...]
    reply: str
    target: str | None
    hint: str | None
    redaction: str


def redactor_of(store: Store) -> Redactor:
    """The redactor with the owner's own words; make it once for many units.

    Raises:
        UsageError: the setting `privacy.words` is not a list of words.
    """
    words = settings.get(store, settings.PRIVACY_WORDS)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"the setting {settings.PRIVACY_WORDS} must be a list of words: set it again")
    return Redactor(words)


def redacted_turns(store: Store, unit: Unit, redactor: Redactor | None = None) -> RedactedUnit:
    """A unit's text for training, with placeholders that are stable within it.

    Raises:
        NotFound: the unit's reply is gone.
        UsageError: the setting `privacy.words` is not a list of words.
    """
    chosen = redactor_of(store) if redactor is None else redactor
    names = Placeholders()
    path = conversations.path(store, unit.message)
    # Reserved first: a number that somebody typed must not become another individual's before it is read.
    texts = [message.text for message in path]
    for text in (*texts, unit.target or "", unit.hint or ""):
        names.reserve(text)
    redacted = [RedactedTurn(message.role, chosen.redact(message.text, names).text) for message in path]
    target, hint = _each(chosen, names, unit.target, unit.hint)
    return RedactedUnit(tuple(redacted[:-1]), redacted[-1].text, target, hint, REDACTION_VERSION)


def _each(redactor: Redactor, names: Placeholders, *texts: str | None) -> Iterator[str | None]:
    for text in texts:
        yield None if text is None else redactor.redact(text, names).text
