"""What the owner asks for once and for good is heard when it is typed, and only then.

Whether a text was typed by the person at the keyboard is known at this moment and at no later one: a pipe, a program
or an import look alike once they are saved, and so does what was pasted into the line. So the request is noted here, as
a step of the conversation that holds where in the message it stands and what it is about, and the controller acts on
noted requests alone. Facts about the owner are written down at once, as long as the owner lets that happen by itself.
"""

from __future__ import annotations

from app.harness.writer import remember
from store import asked, consent, conversations, events, settings, steering, units
from store.control import Approval
from store.db import Store
from store.events import Content
from store.items import Item
from store.redaction import contains_secret
from store.types import Consent, Dial, EventKind

PIPED = "what followed came through a pipe"
PASTED = "what followed was pasted"


def hear(store: Store, conversation: str, message: str, text: str) -> list[Item]:
    """Take in what a message that the owner typed asks for or states; ``text`` without what was pasted into it.

    Returns what is remembered of it from now on.
    """
    by_itself = settings.get(store, settings.APPROVE_MEMORY) == Approval.AUTOMATIC and not steering.frozen(
        store
    )
    written = remember(store, conversation, message, text) if by_itself else []
    request = asked.standing(text)
    if request is None or (written and request.reading.signature.cause.of_facts):
        return written
    if consent.of(store, conversation)[Dial.MEMORY] is not Consent.ALLOW or contains_secret(text):
        return written
    heard = Content(action={asked.NOTED: list(request.span), asked.ABOUT: request.reading.signature.key})
    events.record(store, conversation, EventKind.MEMORY_WRITE, heard, message=message)
    return written


def pass_over(store: Store, message: str, reason: str) -> None:
    """Let nobody read a message that its owner did not write as what they think of the reply before it."""
    before = conversations.get_message(store, message).parent
    if before is not None:
        units.mark_judged(store, before, reason)
