"""The learner's life: judge what happened, carry out the runs that were asked for, leave when there is nothing.

It holds the home's learner lock throughout, so a run that is under way when it starts belongs to a dead learner
and is begun again. A fault inside a run closes that run with its reason and not the learner. It lingers a little
after the last run, because loading the libraries again costs seconds, and then gives the memory back.
"""

from __future__ import annotations

import logging
import os
import time
from functools import cache

from learner import export, judge, requery, watchdog
from learner.round import Round
from learner.yielding import Yielding
from store import runs, settings
from store.activity import Activity
from store.db import Store
from store.errors import MynahError
from store.home import Home, locked
from store.runs import Run
from store.types import RunState

log = logging.getLogger("mynah.learner")

LINGER_SECONDS = 20.0
_LOOK_SECONDS = 0.5
JUDGE_SECONDS = 180.0
"""A first reading loads the embeddings and fits the reader: 10 s on two busy cores. Each further one takes 10 ms."""
_JUDGE_HANGS = (
    f"the judge has been silent for {JUDGE_SECONDS:.0f} s: what was said next was not read (see learner.log)"
)


def work(home: Home, linger: float = LINGER_SECONDS) -> None:
    """Work until nothing was asked for during ``linger`` seconds. Raises HomeLocked when another learner runs."""
    with locked(home.learner_lock, "learner"), Store.open(home) as store, Activity(home) as lease:
        export.clear_scratch(home)
        yielding = Yielding(lease)
        quiet_since = time.monotonic()
        while not settings.get(store, settings.LEARNING_PAUSED):
            if _look(store, yielding):
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= linger:
                return
            else:
                time.sleep(min(_LOOK_SECONDS, linger))


def _look(store: Store, yielding: Yielding) -> bool:
    """Carry out one run, if one waits; says whether there was one."""
    run = runs.claim(store, os.getpid())
    if run is None:
        return False
    log.info("run %s (%s), attempt %d", run.id, run.trigger, run.attempts)
    try:
        carry_out(store, run, yielding)
    except MynahError as error:
        log.warning("run %s failed: %s", run.id, error)
        runs.fail(store, run.id, str(error))
    except MemoryError:
        runs.fail(
            store, run.id, "there was not enough memory: close other programs, or choose a smaller model"
        )
    except SystemExit:
        # We were asked to end, which is no fault of the run: it must not use up one of its attempts.
        runs.release(store, run.id)
        raise
    except Exception as error:
        log.exception("run %s met a fault", run.id)
        runs.fail(store, run.id, f"{type(error).__name__}: {error} (see learner.log)")
    return True


def carry_out(store: Store, run: Run, yielding: Yielding) -> None:
    """Judge first, so that what was just seen is in the run."""
    runs.progress(store, run.id, RunState.JUDGING, 0.0)
    reader = cache(lambda: judge.fitted_reader(store))
    with watchdog.bounded(JUDGE_SECONDS, _JUDGE_HANGS) as heard:

        def pause() -> None:
            yielding.border()
            heard()

        judged = judge.judge_waiting(store, requery.sentence_similarity, reader, pause)
    log.info("judged: %d found wanting, %d thanked for", judged.negative, judged.positive)
    Round(store, run, yielding).carry_out()
