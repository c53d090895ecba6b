"""One reply, from prompt to end: evaluate, sample, decode bytes, stop, and note down what was sampled.

Token by token and by hand, because each of its steps is needed by somebody: the learner wants the sampled ids
with their log-probabilities, a stop must work within one batch of the prompt or one token, and at every one of
these borders the learner is told to keep off the processor. Positions are counted here; past the window a reply
ends with `length`. The cache is never shifted: a shifted one turns to gibberish, or loops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from app.host.events import Scored
from app.host.jobs import Job
from app.host.prefix import PrefixCache, Slot
from app.host.runtime import Runtime, Sampler
from app.model.decoders import StopFilter, Utf8Decoder
from store.errors import Interrupted
from store.types import FinishReason


@dataclass
class Produced:
    """What a reply came to so far. Times are seconds on the monotonic clock, 0 before they are known."""

    prompt_tokens: int
    cached_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    text: str = ""
    finish: FinishReason | None = None
    began: float = 0.0
    evaluated: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed, the prompt left out; 0 for fewer than two tokens."""
        spent = self.ended - self.first_token
        return (len(self.tokens) - 1) / spent if len(self.tokens) > 1 and spent > 0 else 0.0

    def take_scored(self) -> tuple[Scored, ...]:
        """The scored tokens since the last call."""
        taken, self.scored = tuple(self.scored), []
        return taken

    def usage(self) -> dict[str, int]:
        """Token counts by the names of the OpenAI interface."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": len(self.tokens),
            "total_tokens": self.prompt_tokens + len(self.tokens),
            "cached_tokens": self.cached_tokens,
        }

    def timings(self, asked: float) -> dict[str, float]:
        """Seconds since the request, and decoding speed."""
        first = self.first_token or self.ended
        return {
            "queued": round(max(self.began - asked, 0.0), 4),
            "prompt": round(max((self.evaluated or self.ended) - (self.began or self.ended), 0.0), 4),
            "first_token": round(first - asked, 4),
            "total": round(self.ended - asked, 4),
            "tokens_per_second": round(self.tokens_per_second, 2),
        }


def evaluate_prompt(
    runtime: Runtime,
    cache: PrefixCache,
    key: Hashable,
    prompt: list[int],
    *,
    exact: bool,
    between: Callable[[], None],
) -> tuple[Slot, int]:
    """Bring a slot to a prompt; returns the slot and how many tokens were there already.

    ``between`` runs before each batch and may raise to break off; what was computed by then stays of use.
    """
    plan = cache.plan(key, prompt, exact=exact)
    slot = plan.slot
    if plan.source is not None:
        runtime.copy_prefix(plan.source.sequence, slot.sequence, plan.keep)
    else:
        runtime.truncate(slot.sequence, plan.keep)
    for start, end in plan.chunks:
        between()
        piece = prompt[start:end]
        runtime.evaluate(piece, start, slot.sequence)
        cache.extend(slot, piece)
    return slot, plan.keep


def reply(
    runtime: Runtime, cache: PrefixCache, key: Hashable, job: Job, out: Produced, hold: Callable[[], None]
) -> Iterator[str]:
    """Make a job's reply: yields pieces of text as they may be shown, and fills in ``out``.

    Ends with ``out.finish`` set. ``hold`` is called before every evaluation.

    Raises:
        Interrupted: the job was cancelled; ``out`` holds what there is.
    """

    def between() -> None:
        if job.cancelled.is_set():
            raise Interrupted("the reply was stopped")
        hold()

    out.began = time.monotonic()
    slot, out.cached_tokens = evaluate_prompt(
        runtime, cache, key, list(job.prompt), exact=job.sampling.exact, between=between
    )
    out.evaluated = time.monotonic()
    sampler = runtime.sampler(job.sampling, job.grammar)
    decoder, stops = Utf8Decoder(), StopFilter((*runtime.stop_strings, *job.stops))
    try:
        while out.finish is None:
            token, logprob = sampler.sample()
            out.tokens.append(token)
            out.logprobs.append(logprob)
            if not out.first_token:
                out.first_token = time.monotonic()
            ended = runtime.is_end(token)
            if job.likeliest is not None and not ended:
                out.scored.append(_scored(runtime, sampler, token, logprob, job.likeliest))
            piece = stops.feed(decoder.feed(b"" if ended else runtime.piece(token)))
            if piece:
                out.text += piece
                yield piece
            out.finish = _finish(job, runtime, slot, out, ended=ended, stopped=stops.stopped)
            if out.finish is None:
                between()
                runtime.evaluate([token], len(slot.tokens), slot.sequence)
                cache.extend(slot, [token])
    finally:
        sampler.close()
        out.ended = time.monotonic()
    # A character that was never completed is dropped, text that only began like a stop is not.
    rest = stops.finish()
    if rest:
        out.text += rest
        yield rest


def _scored(runtime: Runtime, sampler: Sampler, token: int, logprob: float, count: int) -> Scored:
    likeliest = tuple((runtime.piece(other), score) for other, score in sampler.likeliest(count))
    return Scored(runtime.piece(token), logprob, likeliest)


def _finish(
    job: Job, runtime: Runtime, slot: Slot, out: Produced, *, ended: bool, stopped: bool
) -> FinishReason | None:
    if ended or stopped:
        return FinishReason.STOP
    if len(out.tokens) >= job.max_tokens or len(slot.tokens) >= runtime.info.context:
        return FinishReason.LENGTH
    return None
