"""Computes the open conversations on a version that has just gone live, while the one before may still write.

Without this the first turn after a swap would compute its whole conversation again. It happens in a thread of its
own and in a lane of its own, at the lowest priority: a reply that is streamed loses nothing to it, and a question
that comes meanwhile takes the lane over, with what was computed by then. Whole chunks from the start only, as a
cold start would compute them, so that replies at temperature 0 may use it too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from app.host.benches import Bench, Benches, Version
from app.host.generation import Place, carry_out
from app.host.jobs import Job, Priority, Serve, Weights
from app.host.prefix import PrefixCache
from app.host.runtime import Runtime
from app.host.trace import Traced
from app.host.versions import Versions
from store.errors import MynahError

log = logging.getLogger("mynah.host")

_LOWEST = 19


class Warming:
    """One version being warmed. Made and asked in the engine's thread; the work is done in one of its own.

    Without a ``bench`` it makes one, if there is memory. ``hold`` is called before each evaluation.
    """

    def __init__(
        self,
        runtime: Runtime,
        version: Version,
        file: Path | None,
        prompts: Sequence[tuple[str | None, Sequence[int]]],
        bench: Bench | None,
        hold: Callable[[], None],
    ) -> None:
        self.version = version
        self.bench = bench
        self.done: list[Sequence[int]] = []
        self.failed = False
        self._runtime = runtime
        self._file = file
        self._prompts = prompts
        self._hold = hold
        self._stop = threading.Event()
        if bench is not None:
            bench.lent = True
        self._thread = threading.Thread(target=self._run, name="warming", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do."""
        return not self._thread.is_alive()

    def finish(self) -> Bench | None:
        """Break off what is left, within one operation; the bench with what was computed, None if there is none."""
        self._stop.set()
        while self._thread.is_alive():
            if self.bench is not None:
                self.bench.lane.interrupt()
            self._thread.join(0.01)
        if self.bench is not None:
            self.bench.lane.proceed()
            self.bench.lent = False
        return self.bench

    def _run(self) -> None:
        _step_back()
        try:
            self._warm()
        except MynahError as error:
            log.warning("a version could not be warmed: %s", error)
            self.failed = True
        except Exception:
            log.exception("a version could not be warmed")
            self.failed = True

    def _warm(self) -> None:
        bench = self.bench or self._made()
        if bench is None:
            self.failed = True
            return
        self.bench = bench
        bench.attach(self.version, self._file)
        place = Place(self._runtime, bench.lane, bench.cache, self.version)
        for owner, prompt in self._prompts:
            if bench.cache.warm(self.version, prompt) < len(prompt):
                plan = bench.cache.plan(self.version, prompt, exact=True)
                plan.slot.owner = owner
                self._hold()
                for _ in carry_out(place, plan, prompt):
                    if self._stop.is_set():
                        return
                    self._hold()
            self.done.append(prompt)

    def _made(self) -> Bench | None:
        lane = self._runtime.spare_lane()
        if lane is None:
            return None
        return Bench(Traced(lane), PrefixCache(lane.sequences, self._runtime.chunk), lent=True)


class OpenConversations:
    """The conversations used last, and the version that each is computed on. For the engine's thread.

    ``hold`` is called before each evaluation of a warming.
    """

    def __init__(self, runtime: Runtime, benches: Benches, hold: Callable[[], None]) -> None:
        self._runtime = runtime
        self._benches = benches
        self._hold = hold
        self._open: OrderedDict[str | None, tuple[Version, list[int]]] = OrderedDict()
        self._warming: Warming | None = None
        self._unfit: Version | None = None

    def note(self, job: Job, version: Version, reply: Sequence[int] = ()) -> None:
        """Remember a conversation that somebody has open; one of no conversation stands for all incognito ones."""
        if job.priority is Priority.BACKGROUND or job.serve is not Serve.ACTIVE:
            return
        owner = job.recorder.conversation
        self._open[owner] = (version, [*job.prompt, *reply])
        self._open.move_to_end(owner)
        # One sequence is left for whatever else is asked.
        while len(self._open) >= self._runtime.lane.sequences:
            self._open.popitem(last=False)

    @property
    def pending(self) -> bool:
        """Whether a warming has ended that was not taken in yet."""
        return self._warming is not None and self._warming.ended

    def look(self, versions: Versions) -> Version | None:
        """Take in what has been warmed, begin what should be; the version that serves, if it is warm."""
        if self._warming is not None:
            if not self._warming.ended:
                return None
            self.collect(versions)
        wanted = versions.serving()
        self._benches.drop_idle(wanted)
        cold = self._cold(wanted)
        if wanted == self._unfit or (not cold and self._benches.of(wanted) is not None):
            return wanted
        try:
            bench = self._benches.to_warm(wanted)
        except LookupError:
            return None
        self._warming = Warming(self._runtime, wanted, versions.file(wanted), cold, bench, self._hold)
        return None

    def _cold(self, wanted: Version) -> list[tuple[str | None, list[int]]]:
        """What is open and computed on another version, in whole chunks, the latest first."""
        chunk = self._runtime.chunk
        return [
            (owner, tokens[: len(tokens) // chunk * chunk])
            for owner, (version, tokens) in reversed(self._open.items())
            if version != wanted and len(tokens) >= chunk
        ]

    def make_way(self, versions: Versions, serve: Weights) -> None:
        """Let a reply have the lane of a warming that it needs, with what was computed by then."""
        if self._warming is not None:
            wanted = versions.wanted(serve)
            if self._warming.version == wanted or len(self._benches.all) == 1:
                self.collect(versions)

    def collect(self, versions: Versions) -> None:
        """End a warming, and take in what came of it."""
        warming, self._warming = self._warming, None
        if warming is None:
            return
        bench = warming.finish()
        if bench is not None:
            self._benches.adopt(bench)
        for owner, (_, tokens) in list(self._open.items()):
            if any(done == tokens[: len(done)] for done in warming.done):
                self._open[owner] = (warming.version, tokens)
        if warming.failed:
            # Not tried again. Where it is the adapter's fault, this takes it out of service.
            self._unfit = warming.version
            if warming.version == versions.serving():
                versions.bench(Serve.ACTIVE)

    def forget(self, versions: Versions) -> None:
        """Remember nothing. A warming ends first: its thread computes on a cache that is about to be dropped."""
        self.collect(versions)
        self._open.clear()


def _step_back() -> None:
    """The lowest priority for this thread alone, where the system knows such a thing."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
