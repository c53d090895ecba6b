"""A conversation as the chat shows it: its visible path, with what is known about each message.

All that is known is asked of the store once for a whole conversation, in one question a table, and put together
here. Asked message by message it was eight questions each, and a conversation of 2,000 messages took 1.4 s to open.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.harness import notes
from store import adapters, conversations, provenance, signals, units, verdicts
from store.conversations import Conversation, Message
from store.db import Store
from store.signals import Signal
from store.types import SignalKind
from store.units import Fate
from store.verdicts import Verdict


@dataclass(frozen=True)
class ThreadMessage:
    """A message on the visible path, with what the chat shows beside it. ``version`` is None for the base.

    ``seen`` is what was noted of the message after a reply that has a verdict; ``elsewhere`` names who wrote a reply
    that was not written here; ``note`` says what a guard found wrong with a reply and could not put right.
    """

    message: Message
    version: int | None
    rating: float | None
    corrected: bool
    fate: Fate | None
    sibling: int
    siblings: list[str]
    verdict: Verdict | None = None
    seen: str | None = None
    elsewhere: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Thread:
    """A conversation as it is shown: the path from its first message to its head."""

    conversation: Conversation
    messages: list[ThreadMessage]


@dataclass(frozen=True)
class _Known:
    """What the store knows about the messages of one conversation, by message."""

    beside: dict[str, list[str]]
    said: dict[str, list[Signal]]
    fates: dict[str, Fate]
    seen: dict[str, str]
    elsewhere: dict[str, str]
    notes: dict[str, str]
    versions: dict[str, int]

    def of(self, message: Message) -> ThreadMessage:
        said, beside = self.said.get(message.id, []), self.beside[message.id]
        thumbs = [signal.value or None for signal in said if signal.kind is SignalKind.THUMB]
        verdict = verdicts.standing(said)
        return ThreadMessage(
            message=message,
            version=self.versions.get(message.adapter) if message.adapter else None,
            rating=thumbs[-1] if thumbs else None,
            corrected=any(signal.kind is SignalKind.CORRECTION for signal in said),
            fate=self.fates.get(message.id),
            sibling=beside.index(message.id),
            siblings=beside,
            verdict=verdict,
            seen=None if verdict is None else self.seen.get(message.id),
            elsewhere=self.elsewhere.get(message.id),
            note=self.notes.get(message.id),
        )


def thread(store: Store, conversation: str) -> Thread:
    """A conversation along its visible path.

    Raises:
        NotFound: there is no such conversation.
    """
    found = conversations.get(store, conversation)
    path = conversations.path(store, found.head) if found.head else []
    known = _known(store, found.id, path)
    return Thread(found, [known.of(message) for message in path])


def message(store: Store, wanted: str) -> ThreadMessage:
    """One message as the chat shows it.

    Raises:
        NotFound: there is no such message.
    """
    found = conversations.get_message(store, wanted)
    return _known(store, found.conversation, [found]).of(found)


def _known(store: Store, conversation: str, shown: list[Message]) -> _Known:
    return _Known(
        conversations.beside(store, conversation),
        signals.of_conversation(store, conversation),
        units.fates(store, conversation),
        verdicts.noted_in(store, conversation),
        provenance.authors_elsewhere(store, conversation),
        notes.under(store, conversation, shown),
        adapters.versions(store, (message.adapter for message in shown)),
    )
