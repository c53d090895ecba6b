"""`python -m learner`: sets itself below everything else on the machine, then starts to work.

The order matters and is why this module imports nothing heavy: the scheduling class is inherited by threads that
are made later, and OpenMP reads its settings once, when torch is imported. Threads that spin at barriers beside a chat
without end cost the chat most of its speed, so they go to sleep, if not at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import warnings
from types import FrameType

from learner.yielding import usable_threads
from store import discreet
from store.errors import HomeLocked, MynahError
from store.home import Home


def main() -> int:
    """Work until there is nothing to do; returns the exit code."""
    step_back()
    bound_threads()
    discreet.set_up(logging.INFO, "%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.captureWarnings(capture=True)
    logging.getLogger("gguf").setLevel(logging.WARNING)
    warnings.simplefilter("once")
    # Raised in the main thread wherever it stands: transactions roll back, the run is begun again later.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    from learner.loop import work

    try:
        work(Home.default().open())
    except HomeLocked:
        return 0
    except MynahError as error:
        logging.getLogger("mynah.learner").error("%s", error)
        return error.exit_code
    return 0


def step_back() -> None:
    """Idle scheduling class and lowest priority: a share only of what nobody else wants."""
    with contextlib.suppress(OSError):
        os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def bound_threads() -> None:
    """Settings that libraries read when they are imported; nothing may ask a network for anything."""
    threads = str(usable_threads())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = threads
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    # A worker that sleeps after each of a step's thousand small operations costs a third of the pace: 129 tokens/s,
    # against 196 where it looks for more work for about a millisecond. In the idle class that is nobody's time.
    os.environ["GOMP_SPINCOUNT"] = "300000"
    os.environ["KMP_BLOCKTIME"] = "0"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    raise SystemExit(main())
