"""One reply, from prompt to end: evaluate, sample, decode bytes, stop, and note down what was sampled.

Token by token and by hand, because each of its steps is needed by somebody: the learner wants the sampled ids
with their log-probabilities, and a stop or somebody who matters more must be heard within one token. So a reply
is an iterator that does one evaluation at a time: between two of them it may be left lying, thrown away or gone
on with, and others may compute on the same lane meanwhile. Positions are counted here; past the window a reply
ends with `length`. The cache is never shifted: a shifted one turns to gibberish, or loops.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from app.host.events import Scored
from app.host.jobs import Job
from app.host.prefix import Plan, PrefixCache, Slot
from app.host.runtime import BrokenOff, Runtime, Sampler
from app.host.trace import Batch, Traced, evaluate_as_recorded
from app.model.decoders import StopFilter, Utf8Decoder
from store.types import FinishReason


@dataclass
class Produced:
    """What a reply came to so far. Times are seconds on the monotonic clock, 0 before they are known.

    ``paused``: seconds that it lay half-written while others were served.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    opening_tokens: int = 0
    scored: list[Scored] = field(default_factory=list)
    text: str = ""
    finish: FinishReason | None = None
    began: float = 0.0
    evaluated: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0
    paused: float = 0.0
    batches: tuple[Batch, ...] = ()
    """In which batches the prompt was computed, with what the reply opens with and the cached part included."""

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed, the prompt left out; 0 for fewer than two tokens."""
        spent = self.ended - self.first_token - self.paused
        made = len(self.tokens) - self.opening_tokens
        return (made - 1) / spent if made > 1 and spent > 0 else 0.0

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


@dataclass(frozen=True)
class Place:
    """Where a reply is made: a lane, its cache, and the version by which its sequences are known."""

    runtime: Runtime
    lane: Traced
    cache: PrefixCache
    key: Hashable


def carry_out(place: Place, plan: Plan, prompt: Sequence[int]) -> Iterator[None]:
    """Bring a plan's slot to a prompt, one evaluation between two borders; none follows the last."""
    lane, slot = place.lane, plan.slot
    if plan.source is not None:
        lane.copy_prefix(plan.source.sequence, slot.sequence, plan.keep)
    else:
        lane.truncate(slot.sequence, plan.keep)
    for number, (start, end) in enumerate(plan.chunks):
        if number:
            yield
        while not _evaluated(place, slot, prompt[start:end]):
            yield


def reply(place: Place, job: Job, out: Produced, clock: Callable[[], float]) -> Iterator[str]:
    """Make a job's reply, one evaluation between two borders; yields what may be shown since the last one, or "".

    Fills in ``out``, and ends with ``out.finish`` set. Between two borders the lane must be on the reply's version;
    what else it computes meanwhile does not matter.
    """
    out.began = clock()
    prompt = [*job.prompt, *(job.opening.tokens if job.opening is not None else ())]
    # For a replay a key that equals nothing else: neither is anything reused here, nor this by anything later.
    key = place.key if job.batches is None else object()
    plan = place.cache.plan(key, prompt, exact=job.sampling.exact)
    slot, out.cached_tokens = plan.slot, plan.keep
    slot.pinned, slot.owner = True, job.recorder.conversation
    try:
        for _ in _computed(place, plan, prompt, job):
            yield ""
        out.batches = place.lane.batches(slot.sequence)
        out.evaluated = clock()
        yield from _decoded(place, slot, job, out, clock)
    finally:
        slot.pinned = False
        out.ended = clock()


def _computed(place: Place, plan: Plan, prompt: list[int], job: Job) -> Iterator[None]:
    if job.batches is None:
        return carry_out(place, plan, prompt)
    return evaluate_as_recorded(place.lane, place.cache, plan.slot, prompt, job.batches)


def _decoded(place: Place, slot: Slot, job: Job, out: Produced, clock: Callable[[], float]) -> Iterator[str]:
    runtime = place.runtime
    sampler = place.lane.sampler(job.sampling, job.grammar, job.grammar_after)
    decoder, stops = Utf8Decoder(), StopFilter((*runtime.stop_strings, *job.stops))
    if job.opening is not None:
        # Through the same decoders, so that a character or a stop string cut in two is put together again.
        out.tokens, out.logprobs = list(job.opening.tokens), list(job.opening.logprobs)
        out.opening_tokens = len(out.tokens)
        out.text = stops.feed(decoder.feed(b"".join(map(runtime.piece, out.tokens))))
        if out.text:
            yield out.text
    try:
        while out.finish is None:
            token, logprob = sampler.sample()
            out.tokens.append(token)
            out.logprobs.append(logprob)
            if not out.first_token:
                out.first_token = clock()
            ended = runtime.is_end(token)
            if job.likeliest is not None and not ended:
                out.scored.append(_scored(runtime, sampler, token, logprob, job.likeliest))
            piece = stops.feed(decoder.feed(b"" if ended else runtime.piece(token)))
            out.text += piece
            out.finish = _finish(job, runtime, slot, out, ended=ended, stopped=stops.stopped)
            if piece or out.finish is None:
                yield piece
            # Of a reply that has ended, the last token needs no position: nothing follows it.
            while out.finish is None and not _evaluated(place, slot, [token]):
                yield ""
    finally:
        sampler.close()
    # A character that was never completed is dropped, text that only began like a stop is not.
    rest = stops.finish()
    if rest:
        out.text += rest
        yield rest


def _evaluated(place: Place, slot: Slot, tokens: Sequence[int]) -> bool:
    """Compute tokens after what a slot holds; False if that was broken off, and is to be done again."""
    try:
        place.lane.evaluate(tokens, len(slot.tokens), slot.sequence)
    except BrokenOff:
        return False
    place.cache.extend(slot, tokens)
    return True


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
