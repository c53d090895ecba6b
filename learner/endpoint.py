"""A teacher that is a program elsewhere: any endpoint that speaks OpenAI's chat interface, by text.

It is off until the owner names one, and stays on this machine unless the owner names the other host as well: what would
leave is the owner's. Sent are the redacted conversation up to the reply and the hint below its last question, nothing
else, and each unit that is sent gets a record of where to and how much, before it is sent. What comes back is untrusted
text: it must pass the same checks as a reply of the local teacher, and then it is learned as a text, like a correction
that nobody typed, because another model's probabilities are not to be had. A teacher that does not answer fails the run
with its reason; units go on waiting. No redirect is followed, so nothing goes where the owner did not say.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from app.model.renderer import Renderer
from learner import checks, hints
from learner.examples import Example, correction_target, with_hint
from learner.taught import Taught
from store import decisions, settings
from store.addresses import is_loopback
from store.db import Store
from store.errors import LearnerError, UsageError
from store.units import Unit

KEY_VARIABLE = "MYNAH_TEACHER_KEY"
TRIES = 4
MAX_REPLY_TOKENS = 200
MAX_TURNS = 5
"""The last question and two exchanges before it: what a reply is judged by."""
_SECONDS = 120.0
_TOO_LONG = f"it takes longer than {_SECONDS:.0f} s"
_MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class Endpoint:
    """Where to ask. Make it with `endpoint_of`, which refuses what the owner did not allow."""

    scheme: str
    host: str
    port: int | None
    path: str
    model: str

    @property
    def place(self) -> str:
        """Host and port, for people."""
        return self.host if self.port is None else f"{self.host}:{self.port}"


def chosen(store: Store) -> Endpoint | None:
    """The owner's endpoint, or None where the teacher is another. Raises UsageError where it is not allowed."""
    url = settings.get(store, settings.TEACHER)
    if not url or settings.is_file(url):
        return None
    return endpoint_of(
        url, settings.get(store, settings.TEACHER_MODEL), settings.get(store, settings.TEACHER_HOSTS)
    )


def endpoint_of(url: str, model: str, allowed: Sequence[str]) -> Endpoint:
    """Check an address such as ``http://127.0.0.1:8080/v1``.

    Raises:
        UsageError: it is no address, or leaves the machine for a host not among ``allowed`` or without encryption.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = (parts.hostname or "").lower()
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise UsageError(f"{url!r} is no address of a teacher: it is like http://127.0.0.1:8080/v1")
    if not is_loopback(host):
        if host not in {name.lower() for name in allowed}:
            raise UsageError(
                f"the teacher at {host} is not on this machine: `mynah config set {settings.TEACHER_HOSTS} {host}` "
                "allows it, and then what you rated, with a hint, leaves the machine (redacted)"
            )
        if parts.scheme != "https":
            raise UsageError(f"the way to {host} is not encrypted: give its https address")
    return Endpoint(parts.scheme, host, port, parts.path.rstrip("/"), model)


def messages(example: Example) -> list[dict[str, str]]:
    """What leaves of an example, exactly: the last turns, redacted, with the hint below the last question."""
    assert example.hint is not None
    return [
        {"role": str(turn.role), "content": turn.content}
        for turn in with_hint(example.turns, example.hint)[-MAX_TURNS:]
    ]


def record(store: Store, unit: Unit, endpoint: Endpoint, sent: Sequence[dict[str, str]]) -> str:
    """Put on record where a unit goes and how much of it; the text itself is in the history. Returns the decision."""
    size = sum(len(each["content"]) for each in sent)
    return decisions.append(
        store,
        "teacher",
        {"unit": unit.id, "content": unit.content_hash},
        {
            "action": f"ask the teacher at {endpoint.place}",
            "reason": f"{len(sent)} messages with {size} characters, personal data replaced",
        },
    )


class EndpointTeacher:
    """Asks for replies to hinted conversations, one after the other; ``pause`` runs before each request."""

    def __init__(self, endpoint: Endpoint, renderer: Renderer, pause: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._renderer = renderer
        self._pause = pause

    def teach(
        self, examples: Sequence[Example], seed: int, told: Callable[[float], None] = lambda _: None
    ) -> list[Taught]:
        """The first reply of each that passes the checks, from at most four tries; the first try is greedy.

        Raises LearnerError where the endpoint does not answer as one.
        """
        done = []
        for example in examples:
            done.append(self._taught(example, seed))
            told(len(done) / len(examples))
        return done

    def close(self) -> None:
        """Nothing is held between requests."""

    def _taught(self, example: Example, seed: int) -> Taught:
        if not hints.says_something(example.hint or ""):
            return Taught(hints.without_hint(example), (hints.NO_WORDS,), hints.NO_WORDS)
        refused: list[str] = []
        for attempt in range(TRIES):
            self._pause()
            text, ended = ask(self._endpoint, messages(example), 0.7 if attempt else 0.0, seed + attempt)
            text = text.strip()
            completion = self._renderer.completion(text)
            reason = checks.teaches(
                text,
                completion[: -len(self._renderer.completion(""))],
                ended=ended,
                question=example.question,
                rejected=example.reply_text,
                hint=example.hint or "",
            )
            if reason is None:
                target = correction_target(completion, example.reply.tokens)
                return Taught(replace(example, chosen=target, hinted=None), tuple(refused))
            refused.append(reason)
        return Taught(example, tuple(refused))


def ask(
    endpoint: Endpoint, sent: Sequence[dict[str, str]], temperature: float, seed: int
) -> tuple[str, bool]:
    """One reply, and whether it ended by itself. Raises LearnerError where there is none."""
    body = json.dumps(
        {
            "model": endpoint.model,
            "messages": list(sent),
            "temperature": temperature,
            "seed": seed,
            "max_tokens": MAX_REPLY_TOKENS,
            "stream": False,
        }
    )
    made = http.client.HTTPSConnection if endpoint.scheme == "https" else http.client.HTTPConnection
    connection = made(endpoint.host, endpoint.port, timeout=_SECONDS)
    late = threading.Event()
    try:
        connection.connect()
        with _cut_off(connection.sock, _SECONDS, late):
            connection.request("POST", f"{endpoint.path}/chat/completions", body, _headers())
            response = connection.getresponse()
            said = response.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        why = _TOO_LONG if late.is_set() else str(error) or type(error).__name__
        raise _broken(endpoint, why) from error
    finally:
        connection.close()
    if late.is_set():
        raise _broken(endpoint, _TOO_LONG)
    if response.status != http.client.OK:
        raise _broken(endpoint, f"status {response.status}")
    return _reply(endpoint, said)


@contextmanager
def _cut_off(taken: socket.socket, seconds: float, late: threading.Event) -> Iterator[None]:
    """Hang up when an answer takes longer in all: a socket's own limit begins anew with each byte that drips in.

    ``late`` is set then.
    """
    over = threading.Event()

    def watch() -> None:
        if not over.wait(seconds):
            late.set()
            with suppress(OSError):
                # Of the socket itself, also below an encrypted one: the reading thread wakes up and sees the end.
                socket.socket.shutdown(taken, socket.SHUT_RDWR)

    watching = threading.Thread(target=watch, name="teacher-limit", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _headers() -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    key = os.environ.get(KEY_VARIABLE)
    return {**headers, "Authorization": f"Bearer {key}"} if key else headers


def _reply(endpoint: Endpoint, said: bytes) -> tuple[str, bool]:
    try:
        answer: Any = json.loads(said)
        choice = answer["choices"][0]
        text, why = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise _broken(endpoint, "its answer is not that of a chat interface") from None
    if not isinstance(text, str):
        raise _broken(endpoint, "its answer holds no text")
    return text, why == "stop"


def _broken(endpoint: Endpoint, why: str) -> LearnerError:
    return LearnerError(
        f"the teacher at {endpoint.place} does not answer ({why}): start it, or "
        f"`mynah config unset {settings.TEACHER}` to learn without it"
    )
