"""The chat as lines of text: for a screen reader, a dumb terminal and a pipe.

A full-screen program redraws what it has shown, which a screen reader speaks again and a pipe cannot hold. Here every
line is written once and whole, nothing moves the cursor, and what a key does elsewhere is a word behind a slash. A
person gets prompts and is told what can be done; a pipe gets the replies alone, and a failure ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.cli.output import put, say, say_remembered
from app.counting import told_in_short
from app.host.client import TurnRequest, TurnStream, failed
from app.host.events import Done, Queued, Started, Token
from store.errors import MynahError, UsageError
from store.types import SignalKind

if TYPE_CHECKING:
    from app.service import Receipt, Service

SHOWN_CHATS = 9
PROMPT = "You: "
NAME = "Mynah: "

HELP = """\
Write a line and press Enter. A line that ends with \\ goes on in the next one.
/good, /bad WHY, /correct TEXT   rate the last reply, or say how it should have been
/again, /continue                another reply; go on with one that was stopped or cut
/new, /chats, /open NUMBER       another conversation; the last ones; go on with one
/learn, /status                  learn now; what is learned and what waits
/quit, or Ctrl-D                 leave; Ctrl-C stops a reply, what was said so far is kept"""


class PlainChat:
    """One chat over standard input and output."""

    def __init__(self, service: Service, read: Callable[[], str | None], person: bool) -> None:
        self._service = service
        self._read = read
        self._person = person
        self._conversation: str | None = None
        self._reply: str | None = None
        self._question: str | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "help": lambda _: say(HELP),
            "good": lambda _: self._rated(lambda reply: self._service.rate(reply, 1)),
            "bad": lambda why: self._rated(lambda reply: self._service.rate(reply, -1, note=why or None)),
            "correct": lambda text: self._rated(lambda reply: self._service.correct(reply, text)),
            "again": lambda _: self._again(),
            "continue": lambda _: self._answer(TurnRequest(extend=self._last(), source="cli")),
            "new": lambda _: self._new(),
            "chats": lambda _: self._chats(),
            "open": self._open,
            "learn": lambda _: self._learn(),
            "status": lambda _: self._status(),
        }

    def run(self) -> int:
        """Until the input ends or the owner leaves; the exit code.

        Raises:
            MynahError: something failed, and nobody is there to try again.
        """
        if self._person:
            say("Mynah, line by line. /help says what there is, /quit leaves.")
        for line in self._lines():
            name, _, argument = line.strip().removeprefix("/").partition(" ")
            if line.strip() in ("/quit", "/exit"):
                break
            with self._one_line_errors():
                if line.strip().startswith("/") and name in self._commands:
                    self._commands[name](argument.strip())
                elif line.strip().startswith("/") and name.isalpha() and not argument:
                    raise UsageError(f"there is no command /{name}: /help lists them")
                else:
                    self._ask(line)
        return 0

    def _lines(self) -> Iterator[str]:
        """What is written, a message at a time."""
        parts: list[str] = []
        while (line := self._next(bool(parts))) is not None:
            if line.endswith("\\"):
                parts.append(line[:-1])
                continue
            text = "\n".join([*parts, line])
            parts = []
            if text.strip():
                yield text
        if any(part.strip() for part in parts):
            yield "\n".join(parts)

    def _next(self, goes_on: bool) -> str | None:
        if self._person:
            put("...  " if goes_on else PROMPT, newline=False)
            sys.stdout.flush()
        return self._read()

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        try:
            yield
        except MynahError as error:
            if not self._person:
                raise
            say(f"{error}.")

    def _ask(self, text: str) -> None:
        # What comes through a pipe is somebody's text, not something that was typed.
        self._answer(
            TurnRequest(text=text, conversation=self._conversation, source="cli", typed=self._person)
        )

    def _again(self) -> None:
        if self._reply is not None:
            self._service.note(self._reply, SignalKind.REGENERATE)
            self._answer(TurnRequest(regenerate=self._reply, source="cli"))
        elif self._question is not None:
            self._answer(TurnRequest(continue_from=self._question, source="cli"))
        else:
            raise UsageError("there is nothing to answer yet")

    def _answer(self, request: TurnRequest) -> None:
        """Write a reply in whole lines as they are complete. Ctrl-C stops it."""
        lines = _Lines(NAME if self._person else "")
        self._reply = None
        with self._service.chat(request) as stream:
            try:
                self._follow(stream, lines)
            except KeyboardInterrupt:
                if not self._person:
                    raise
                stream.close()
                lines.end()
                say("(stopped; /continue goes on)")

    def _follow(self, stream: TurnStream, lines: _Lines) -> None:
        for event in stream:
            error = failed(event)
            if error is not None:
                lines.end()
                raise error
            if isinstance(event, Queued | Started):
                self._conversation = event.conversation or self._conversation
                self._question = event.user_message or self._question
            if isinstance(event, Queued) and event.ahead:
                say(f"(waiting behind {event.ahead} other replies)")
            elif isinstance(event, Started):
                self._reply = event.message
                if event.left_out:
                    short = told_in_short(event.left_out, event.summarised)
                    say(
                        f"(longer than the model's window: {event.left_out} earlier messages were left out{short})"
                    )
            elif isinstance(event, Token):
                lines.add(event.text)
            elif isinstance(event, Done):
                lines.end()
                if event.finish_reason == "length":
                    say("(cut at its length limit; /continue goes on)")
                for note in event.notes:
                    say(f"({note})")
                say_remembered(event.remembered)

    def _last(self) -> str:
        if self._reply is None:
            raise UsageError("there is no reply yet")
        return self._reply

    def _rated(self, act: Callable[[str], Receipt]) -> None:
        fate = act(self._last()).fate
        say(f"({fate.text})" if fate is not None else "(noted)")

    def _new(self) -> None:
        self._conversation = self._reply = self._question = None
        say("(a new conversation)")

    def _chats(self) -> None:
        for number, each in enumerate(self._service.conversations(SHOWN_CHATS), 1):
            put(f"{number}. {' '.join(each.title.split())}")

    def _open(self, number: str) -> None:
        found = self._service.conversations(SHOWN_CHATS)
        if not number.isdigit() or not 1 <= int(number) <= len(found):
            raise UsageError("which one? /chats numbers them")
        self.go_on(found[int(number) - 1].id)

    def go_on(self, conversation: str) -> None:
        """Go on with a conversation; a person is shown what was said last."""
        thread = self._service.thread(conversation)
        self._conversation, self._reply, self._question = thread.conversation.id, None, None
        for each in thread.messages[-2:]:
            if each.message.role.value == "assistant":
                self._reply, name = each.message.id, NAME
            else:
                self._question, name = each.message.id, PROMPT
            if self._person:
                put(f"{name}{each.message.text}")

    def _learn(self) -> None:
        run = self._service.learn_now()
        if run.state.finished:
            say("(there is nothing to learn from: rate or correct a reply first)")
        else:
            say("(learning; keep chatting, /status says how far it is)")

    def _status(self) -> None:
        learning, serving = self._service.learning(), self._service.serving()
        version = f"v{serving.adapter.version}" if serving.adapter else "the base model"
        say(f"({version} answers; {len(learning.waiting)} waiting to be learned)")
        if learning.run is not None:
            say(f"(learning: {learning.run.state.value}, {learning.run.fraction:.0%})")


class _Lines:
    """Writes a text that comes in pieces as whole lines."""

    def __init__(self, name: str) -> None:
        self._held = name

    def add(self, text: str) -> None:
        *whole, self._held = (self._held + text).split("\n")
        for line in whole:
            put(line)
        if whole:
            sys.stdout.flush()

    def end(self) -> None:
        if self._held:
            put(self._held)
            self._held = ""
        sys.stdout.flush()


def read_line() -> str | None:
    """The next line of standard input; None at its end, or where Ctrl-C was pressed instead."""
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        return None
    return line.rstrip("\r\n") if line else None
