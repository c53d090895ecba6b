"""What is written down of a reply, at its start and at its end: the rows that the learner reads later."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from app.host.benches import Version
from app.host.events import Done, Failed
from app.host.generation import Produced
from app.host.jobs import Job
from app.host.machine import machine_of
from app.host.runtime import ModelInfo
from store.conversations import ReplyEnd, ReplyStart
from store.types import ErrorClass, FinishReason, MessageStatus

_STATUS = {
    FinishReason.STOP: MessageStatus.COMPLETE,
    FinishReason.LENGTH: MessageStatus.COMPLETE,
    FinishReason.CANCELLED: MessageStatus.STOPPED,
    FinishReason.ERROR: MessageStatus.FAILED,
}
_CLASS = {FinishReason.CANCELLED: ErrorClass.CANCELLED}


def start_of(info: ModelInfo, job: Job, version: Version) -> ReplyStart:
    """What is known before the first token."""
    return ReplyStart(
        base_hash=info.base_hash,
        adapter=version.adapter,
        scale=version.scale,
        sampler=_sampler_of(job),
        template=info.template,
        prompt_tokens=job.prompt,
        left_out=job.left_out,
        context_items=job.context_items,
    )


def end_of(info: ModelInfo, job: Job, out: Produced, failure: Failed | None) -> ReplyEnd:
    """What a reply came to."""
    assert out.finish is not None
    return ReplyEnd(
        text=out.text,
        status=_STATUS[out.finish],
        finish_reason=out.finish,
        completion_tokens=out.tokens,
        logprobs=out.logprobs,
        error_class=failure.error_class if failure is not None else _CLASS.get(out.finish),
        error=failure.message if failure is not None else None,
        usage=out.usage(),
        timings=out.timings(job.created),
        machine={**machine_of(info), "evaluated": out.batches},
    )


def done_of(job: Job, version: Version, out: Produced, end: ReplyEnd) -> Done:
    """The event that ends a reply."""
    return Done(
        job.recorder.conversation,
        job.message,
        out.text,
        version.adapter,
        end.finish_reason.value,
        end.usage,
        end.timings,
        left_out=job.left_out,
        summarised=job.summarised,
    )


def _sampler_of(job: Job) -> dict[str, Any]:
    """All that drawing the reply depended on; the seed is there also where the client gave none."""
    given = {"stops": list(job.stops), "grammar": job.grammar, "grammar_after": job.grammar_after}
    asked: dict[str, Any] = {name: value for name, value in given.items() if value}
    if job.summarised:
        asked["summarised"] = job.summarised
    return {**asdict(job.sampling), "max_tokens": job.max_tokens, **asked}
