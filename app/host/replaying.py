"""A recorded reply computed once more, from its token ids, in the batches it was computed in then.

It goes through the same queue and the same loop as any reply, behind everything a person waits for, and its recorder
keeps what was drawn in memory: nothing of it is written. A reply that went on with another begins with the same
tokens again, which were given to it and not drawn. Its sequence is never lent to another reply, since it may
hold batches that were filled up with tokens nobody said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.host.core import Host
from app.host.door import body_of
from app.host.events import Done, Failed
from app.host.jobs import Exactly, Job, Opening, Priority
from app.host.requests import FieldError, limits, mapping, text
from app.host.sse import EventChannel, hung_up
from app.host.trace import Batch, positions
from store import ids
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.errors import MynahError, UsageError


@dataclass
class Kept:
    """A recorder that keeps a reply's end in memory."""

    conversation: str | None = None
    user_message: str | None = None
    end: ReplyEnd | None = None

    def begin(self, _store: Store, _start: ReplyStart) -> None:
        """Nothing."""

    def checkpoint(self, _store: Store, _text: str) -> None:
        """Nothing."""

    def finish(self, _store: Store, end: ReplyEnd) -> None:
        """Keep it."""
        self.end = end


async def replay(host: Host, request: Request) -> Response:
    """The handler: token ids in, what is drawn from them out. Answers when the reply has ended."""
    recorder, channel = Kept(), EventChannel()
    job = _job(host, await body_of(request), recorder, channel)
    host.engine.submit(job)
    async with hung_up(request.receive, job.cancelled.set):
        async for event in channel.events():
            if isinstance(event, Failed):
                raise MynahError(f"it could not be replayed: {event.message}")
            if isinstance(event, Done):
                break
    assert recorder.end is not None
    end = recorder.end
    return JSONResponse(
        {
            "tokens": list(end.completion_tokens),
            "logprobs": list(end.logprobs),
            "text": end.text,
            "finish_reason": end.finish_reason,
            "machine": end.machine,
        }
    )


def _job(host: Host, fields: Mapping[str, Any], recorder: Kept, channel: EventChannel) -> Job:
    """The job that a request asks for.

    Raises:
        UsageError: a field is of the wrong kind, or the prompt does not fit this host's window.
    """
    prompt = _tokens("prompt", fields.get("prompt"))
    opening = _tokens("opening", fields["opening"]) if fields.get("opening") else []
    sampler = mapping(fields.get("sampler"))
    window = host.runtime.info.context
    given = [*prompt, *opening]
    if len(given) >= window:
        raise UsageError(f"its prompt of {len(given)} tokens does not fit the window of {window} tokens")
    if text(fields, "base_hash") != host.runtime.info.base_hash:
        raise UsageError(
            f"another model is being served ({host.runtime.info.name}): its tokens mean other words"
        )
    chosen = limits(sampler)
    adapter = text(fields, "adapter")
    return Job(
        id=ids.new_id("j"),
        client="replay",
        priority=Priority.PROGRAM,
        prompt=prompt,
        sampling=chosen.sampling,
        max_tokens=min(chosen.max_tokens, window - len(prompt)),
        recorder=recorder,
        sink=channel.sink,
        stops=tuple(str(stop) for stop in sampler.get("stops", ())),
        grammar=text(sampler, "grammar"),
        grammar_after=text(sampler, "grammar_after"),
        serve=Exactly(adapter, float(fields.get("scale") or 0.0)),
        batches=_batches(fields.get("evaluated"), given, host.runtime.chunk),
        opening=Opening("", "", opening, [0.0] * len(opening)) if opening else None,
    )


def _tokens(name: str, value: object) -> list[int]:
    if not isinstance(value, list) or not value or not all(type(each) is int and each >= 0 for each in value):
        raise FieldError(name, f"{name} must be a list of token ids")
    return value


def _batches(value: object, prompt: list[int], chunk: int) -> tuple[Batch, ...]:
    """The batches a prompt was computed in; those of an empty cache where they are not known."""
    if value is None:
        whole, rest = divmod(len(prompt), chunk)
        cold = (Batch(chunk, chunk, whole), Batch(rest, rest, 1))
        return tuple(batch for batch in cold if batch.kept and batch.times)
    try:
        batches = tuple(Batch(*map(int, each)) for each in cast(Iterable[Any], value))
    except (TypeError, ValueError):
        raise FieldError("evaluated", "evaluated must be a list of batches") from None
    sound = all(0 < kept <= size <= chunk and times > 0 for kept, size, times in batches)
    if not sound or positions(batches) != len(prompt):
        raise FieldError(
            "evaluated", f"the batches do not come to the prompt, {chunk} tokens each at the most"
        )
    return batches
