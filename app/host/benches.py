"""Where replies are made: one lane for each version that is wanted at once, and what its cache holds.

A version that goes live gets a lane of its own, so that it can be warmed while the one before still writes, and
so that going back is immediate; the untouched base, for comparing and for judging, is one version among them. A
lane costs as much memory as its windows are long, so there are three at the most, one that nobody has used for
two minutes is freed, and where there is no memory for another the one that is free the longest changes its
adapter. A cache is keyed by version, so that is a question of speed, never of right or wrong.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.host.prefix import PrefixCache
from app.host.runtime import Lane, Runtime
from app.host.trace import Traced

log = logging.getLogger("mynah.host")

MOST_LANES = 3
IDLE_SECONDS = 120.0


@dataclass(frozen=True)
class Version:
    """What a reply was computed with. ``adapter`` None is the base alone; ``number`` is what people see (v3)."""

    adapter: str | None = None
    number: int | None = None
    scale: float = 0.0


BASE = Version()


@dataclass(eq=False)
class Bench:
    """A lane with its cache. ``users``: replies that are being made on it or lie half-made. ``lent``: to a warming."""

    lane: Traced
    cache: PrefixCache
    version: Version = BASE
    users: int = 0
    lent: bool = False
    used: float = field(default_factory=time.monotonic)

    def attach(self, version: Version, file: Path | None) -> None:
        """Compute with this version from now on. Raises AdapterFileError and keeps the one before."""
        if version != self.version:
            self.lane.attach(file, version.scale)
            self.version = version


class Benches:
    """All lanes of one model. For the engine's thread."""

    def __init__(self, runtime: Runtime, clock: Callable[[], float] = time.monotonic) -> None:
        self._runtime = runtime
        self._clock = clock
        self.all = [self._bench(runtime.lane)]

    def take(self, version: Version, file: Path | None) -> Bench:
        """A bench on this version: the one that has it, a new one, or one that changes over.

        Raises:
            AdapterFileError: the adapter does not load. No bench was changed.
        """
        bench = self.of(version)
        if bench is None:
            fresh = self._fresh()
            bench = fresh or self._longest_free()
            try:
                bench.attach(version, file)
            except BaseException:
                if fresh is not None:
                    fresh.lane.close()
                raise
            if fresh is not None:
                self.all.append(fresh)
        bench.used = self._clock()
        return bench

    def adopt(self, bench: Bench) -> None:
        """Count a bench in that was made elsewhere."""
        if bench not in self.all:
            self.all.append(bench)
        bench.used = self._clock()

    def to_warm(self, version: Version) -> Bench | None:
        """A bench on which a version may be warmed while replies are made elsewhere; None if that needs a new one.

        Raises:
            LookupError: there is none, and no room for one.
        """
        bench = self.of(version)
        if bench is None and (self.full or self.only_unused):
            bench = self._longest_free()
        if bench is not None and (bench.users or bench.lent):
            raise LookupError
        return bench

    @property
    def full(self) -> bool:
        """Whether no lane more is made."""
        return len(self.all) >= MOST_LANES

    @property
    def only_unused(self) -> bool:
        """Whether there is one bench, with nothing on it: it changes over, for a second would be waste."""
        return len(self.all) == 1 and self.all[0].cache.unused

    def _longest_free(self) -> Bench:
        own = [bench for bench in self.all if not bench.lent]
        return min(own or self.all, key=lambda bench: (bench.users > 0, bench.used))

    def of(self, version: Version) -> Bench | None:
        """The bench on this version, if there is one."""
        return next((bench for bench in self.all if bench.version == version), None)

    def drop_idle(self, serving: Version) -> None:
        """Free what nobody has used for a while, but for the bench that serves."""
        limit = self._clock() - IDLE_SECONDS
        for bench in [each for each in self.all if not (each.users or each.lent) and each.used < limit]:
            if bench.version != serving and len(self.all) > 1:
                self.all.remove(bench)
                bench.lane.close()
                log.info("freed an idle context; %d left", len(self.all))

    def forget(self) -> None:
        """Drop what all caches hold."""
        for bench in self.all:
            bench.cache.forget()

    def _fresh(self) -> Bench | None:
        lane = None if self.full or self.only_unused else self._runtime.spare_lane()
        return None if lane is None else self._bench(lane)

    def _bench(self, lane: Lane) -> Bench:
        return Bench(Traced(lane), PrefixCache(lane.sequences, self._runtime.chunk), used=self._clock())
