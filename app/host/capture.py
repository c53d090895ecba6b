"""What is kept of a conversation, and when: the question before anything is generated, the reply while it is.

A question is checked first and saved then, so that a message too long for the model goes back to its writer and
leaves no trace; once it is saved, nothing that happens to the host can lose it. Incognito has a recorder of its
own with empty methods: what must not be written has no code that could write it.

A finished reply cannot be changed, so one that was cut is gone on with in a sibling: it begins with the same tokens,
says in its row which reply they came from, and leaves the cut one as it was.

A program that talks to the OpenAI endpoint sends its whole transcript each time. The hash of every prefix of it
is looked up, longest first: where one is known, the new messages join that conversation, so that what a person
says next is known to follow our reply. From the longest prefix on, replies are also known by their text without
outer white space and hidden thoughts, which clients cut off, and replies with tool calls by the ids of the calls.

Programs also ask for what nobody said: titles, summaries, steps of an agent. What continues nothing has no next
state, so nothing is concluded from it. What is marked as not to be learned from becomes an aside: a conversation
of its own whose consent says no, and to which no other transcript is ever matched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from app.host.events import TurnRequest
from app.host.jobs import Opening
from app.host.requests import turns_of
from app.model.renderer import Turn
from store import consent, conversations, events
from store.conversations import Message, ReplyEnd, ReplyStart
from store.db import Store
from store.errors import UsageError
from store.types import Consent, Dial, FinishReason, MessageStatus, Role

_THOUGHTS = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


class Learn(StrEnum):
    """Whether a program's request may teach."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class Question:
    """What is to be answered, read but not saved: ``new`` messages go under ``parent``, the last is answered.

    With nothing new, ``parent`` itself is the message to answer. ``turns`` is the whole conversation for the model.
    ``opening`` is what the reply begins with, where it goes on with another.
    """

    turns: list[Turn]
    conversation: str | None = None
    parent: str | None = None
    new: list[Turn] = field(default_factory=list)
    source: str = conversations.PROGRAM
    opening: Opening | None = None


@dataclass
class StoreRecorder:
    """Keeps one reply in the store, under the message it answers."""

    conversation: str
    user_message: str
    reply: str | None = None
    opening: Opening | None = None
    instead_of: str | None = None
    """The attempt that a guard refused, and nobody saw."""

    def begin(self, store: Store, start: ReplyStart) -> str:
        """Open the reply's row."""
        if self.opening is not None:
            taken = {"extends": self.opening.message, "opening_tokens": len(self.opening.tokens)}
            start = replace(start, sampler={**start.sampler, **taken})
        if self.instead_of is not None:
            start = replace(start, sampler={**start.sampler, conversations.INSTEAD_OF: self.instead_of})
        self.reply = conversations.begin_reply(store, self.conversation, self.user_message, start).id
        return self.reply

    def checkpoint(self, store: Store, text: str) -> None:
        """Save the text so far."""
        assert self.reply is not None
        conversations.checkpoint(store, self.reply, text)

    def finish(self, store: Store, end: ReplyEnd) -> None:
        """Close the row."""
        assert self.reply is not None
        conversations.finish_reply(store, self.reply, end)


class Incognito:
    """Keeps nothing."""

    conversation: str | None = None
    user_message: str | None = None

    def begin(self, _store: Store, _start: ReplyStart) -> None:
        """Nothing."""

    def checkpoint(self, _store: Store, _text: str) -> None:
        """Nothing."""

    def finish(self, _store: Store, _end: ReplyEnd) -> None:
        """Nothing."""


def read(store: Store, request: TurnRequest) -> Question:
    """What one of our own clients asks.

    Raises:
        NotFound: a message or conversation that does not exist.
        UsageError: a message that cannot be answered or gone on from.
    """
    if request.incognito:
        assert request.text is not None
        return Question([*turns_of(request.incognito_turns), Turn(Role.USER, request.text)])
    if request.regenerate is not None:
        reply = conversations.get_message(store, request.regenerate)
        if reply.role is not Role.ASSISTANT or reply.parent is None:
            raise UsageError(f"{reply.id} is not a reply: only replies can be made anew")
        return _again(store, conversations.get_message(store, reply.parent))
    if request.extend is not None:
        return _extended(store, conversations.get_message(store, request.extend))
    if request.text is None:
        assert request.continue_from is not None
        return _again(store, conversations.get_message(store, request.continue_from))
    return _under(store, request)


def _again(store: Store, asked: Message) -> Question:
    if asked.role is not Role.USER:
        raise UsageError(f"{asked.id} is not a message of the owner's: there is nothing to answer")
    return Question(_turns(conversations.path(store, asked.id)), asked.conversation, asked.id)


def _extended(store: Store, reply: Message) -> Question:
    """The question of a reply that was cut, with the reply's tokens as the new one's beginning."""
    if reply.role is not Role.ASSISTANT or reply.parent is None:
        raise UsageError(f"{reply.id} is not a reply: only a reply can be gone on with")
    if reply.status is MessageStatus.GENERATING:
        raise UsageError("this reply is still being written")
    if reply.status is MessageStatus.COMPLETE and reply.finish_reason is not FinishReason.LENGTH:
        raise UsageError("this reply ended by itself: there is nothing to go on with")
    said = conversations.tokens(store, reply.id)
    question = _again(store, conversations.get_message(store, reply.parent))
    if events.repaired(store, reply.id):
        return replace(question, opening=Opening(reply.id, reply.text))
    return replace(question, opening=Opening(reply.id, reply.text, said.completion, said.logprobs))


def _under(store: Store, request: TurnRequest) -> Question:
    """A new message under a given one, under the conversation's head, or in a conversation of its own."""
    assert request.text is not None
    conversation, parent = request.conversation, request.continue_from
    if request.edit is not None:
        edited = conversations.get_message(store, request.edit)
        if edited.role is not Role.USER:
            raise UsageError(f"{edited.id} is not a message of the owner's: only those can be edited")
        conversation, parent = edited.conversation, edited.parent
    elif parent is not None:
        conversation = conversations.get_message(store, parent).conversation
    elif conversation is not None:
        parent = conversations.get(store, conversation).head
    before = conversations.path(store, parent) if parent is not None else []
    if before and before[-1].status is MessageStatus.GENERATING:
        raise UsageError("the last reply is still being written: stop it, or wait until it ends")
    new = Turn(Role.USER, request.text)
    return Question([*_turns(before), new], conversation, parent, [new], request.source)


def match(
    store: Store, transcript: Sequence[Turn], ours: Mapping[int, str] | None = None, learn: Learn = Learn.ON
) -> Question:
    """What a program asks that sends its whole transcript: found in its conversation, or new.

    A transcript that is known to its end is a question asked again, and gets another reply beside the first. A
    first message alone is never looked up: two people may well begin with "hi". ``ours`` says by its place which
    reply of ours a turn is, where the program can name it.
    """
    turns = list(transcript)
    found, known = _longest(store, turns, ours or {}, asides=learn is Learn.OFF)
    if found:
        return Question(turns, found.conversation, found.id, turns[known:])
    if learn is Learn.ON:
        return Question(turns, new=turns)
    # What another conversation holds already is not copied: the prompt of the reply records it.
    _, known = _longest(store, turns, ours or {}, asides=False)
    return Question(turns, new=turns[min(known, len(turns) - 1) :], source=conversations.ASIDE)


def _longest(
    store: Store, turns: Sequence[Turn], ours: Mapping[int, str], *, asides: bool
) -> tuple[Message | None, int]:
    """The message at which the longest known prefix ends, and how many turns that prefix has."""
    digests: list[str] = []
    for turn in turns:
        digests.append(conversations.path_hash(digests[-1] if digests else "", turn.role, turn.content))
    opening = next((index for index, turn in enumerate(turns) if turn.role is Role.USER), 0) + 1
    ends: list[Message] = []
    known = len(turns) + 1
    while known > opening and not ends:
        known -= 1
        ends = conversations.by_path(store, digests[known - 1], asides=asides)
    while known < len(turns):
        further = [child for end in ends for child in conversations.children(store, end.id)]
        further = [child for child in further if _same(child, turns[known], ours.get(known))]
        if not further:
            break
        ends, known = further, known + 1
    return (ends[0], known) if ends and known > opening else (None, 0)


def _same(message: Message, turn: Turn, named: str | None) -> bool:
    """Whether a client's turn is this message, as clients keep it."""
    if message.role is not turn.role or message.status is MessageStatus.GENERATING:
        return False
    return message.id == named or _kept(message.text) == _kept(turn.content)


def _kept(text: str) -> str:
    return _THOUGHTS.sub("", text, count=1).strip()


def save(store: Store, question: Question) -> StoreRecorder:
    """Save what is new of a question, in one transaction; returns where its reply is to be kept."""
    with store.write():
        conversation, parent = question.conversation, question.parent
        if conversation is None:
            first = next((turn.content for turn in question.new if turn.role is Role.USER), "")
            conversation = conversations.create(store, conversations.title_from(first), question.source)
            if question.source == conversations.ASIDE:
                for dial in (Dial.MEMORY, Dial.TRAIN):
                    consent.set_(store, conversation, dial, Consent.DENY, consent.By.PROGRAM)
        for turn in question.new:
            parent = conversations.append(store, conversation, turn.role, turn.content, parent).id
        assert parent is not None
        return StoreRecorder(conversation, parent, opening=question.opening)


def _turns(messages: Sequence[Message]) -> list[Turn]:
    return [Turn(message.role, message.text) for message in messages]
