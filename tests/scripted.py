"""A model without weights, behind the same interface as llama.cpp's, and a real host process that runs on it.

It is told what to do by the last message of the user, so one program serves every test and no test needs to
configure a process it does not hold: ``echo TEXT``, ``count N`` (numbers, one token each), ``slow N`` (the same,
0.05 s each), ``hang N`` (the same, 1 s each), ``fail N`` (a fault after N tokens), ``memory N`` (the same, out of
memory), ``quote TEXT`` (a fault whose words are the question), ``unfit`` (the same, before it is queued), ``bytes
TEXT`` (one UTF-8 byte per token), ``forever``, ``spell`` (its own control token, in pieces), ``version`` (what is
attached), ``turns`` (how many turns it was given), ``grammar`` (the one it must keep to), ``system`` (its system
prompt), ``raw TEXT`` (the text, which may hold markup, ten characters at a time), ``prompt`` (the whole message it was
asked with, what memories were put before it included). Asked again because a guard refused its reply it says ``fine``,
or after ``stubborn TEXT`` the same again. Any other message is answered with
``You said: …``. It reads the question out of the tokens of the sequence it was given, so a cache that mixes up
conversations shows.

To start a host on it for the commands of a test: ``with scripted_host(home): …``.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from app.harness.recall import without_block
from app.host.client import HostClient, running_host, stop_host
from app.host.jobs import Sampling
from app.host.runtime import STEPS, BrokenOff, Encoder, ModelInfo
from app.model.renderer import Fitted, Renderer, Turn
from store.errors import AdapterFileError
from store.home import Home

BASE_HASH = "5c" * 32
MODEL = "scripted"
REFUSED = "Your answer was not accepted"
START, END, BOS = 256, 257, 258
FIRST_PIECE = 1000
BROKEN = b"broken"
_CONTROLS = {START: "<|im_start|>", END: "<|im_end|>", BOS: ""}
SOURCE = Path(__file__).resolve().parent.parent


class ByteVocab:
    """One token per byte, two control tokens, and a token for each piece the model ever says."""

    adds_bos = False
    bos = BOS
    eos = END
    end_of_turn = END
    end_ids = frozenset({END})

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def encode(self, text: str, *, special: bool) -> list[int]:
        if special:
            for token in (START, END):
                before, mark, after = text.partition(_CONTROLS[token])
                if mark:
                    return [*self.encode(before, special=True), token, *self.encode(after, special=True)]
        return list(text.encode())

    def control_text(self, token: int) -> str:
        return _CONTROLS.get(token, "")

    def is_control(self, token: int) -> bool:
        return token in _CONTROLS

    def token_of(self, piece: bytes) -> int:
        if piece not in self._pieces:
            self._pieces.append(piece)
        return FIRST_PIECE + self._pieces.index(piece)

    def piece(self, token: int) -> bytes:
        if token >= FIRST_PIECE:
            return self._pieces[token - FIRST_PIECE]
        return bytes([token]) if token < START else b""

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.piece, tokens)).decode()


class ScriptedRuntime:
    """Implements `app.host.runtime.Runtime`; keeps a record of what was asked of it.

    ``pause`` is how time passes while something is computed: with a clock that a test turns, no time at all.
    """

    chunk = 64
    sequences = 3

    def __init__(
        self,
        context: int = 4096,
        token_seconds: float = 0.0,
        batch_seconds: float = 0.0,
        pause: Callable[[float], None] = time.sleep,
        most_lanes: int = 3,
    ) -> None:
        self.info = ModelInfo(MODEL, BASE_HASH, "scripted", context, "t" * 16, 1, 1, "script 1")
        self.vocab = ByteVocab()
        self.renderer = Renderer(self.vocab, None)
        self.stop_strings = self.renderer.stop_strings
        self.token_seconds = token_seconds
        self.batch_seconds = batch_seconds
        self.pause = pause
        self.most_lanes = most_lanes
        self.evaluated: list[tuple[int, int, int]] = []
        self.samplings: list[Sampling] = []
        self.grammars: list[str | None] = []
        self.drawn_from: list[tuple[list[int], list[tuple[int, int]]]] = []
        """Of each reply the tokens it goes on from, and for each its place in an evaluation, and the size of that."""
        self.words: Encoder | None = None
        self.closed = False
        self.lanes: list[ScriptedLane] = []
        self.lane = ScriptedLane(self)

    def spare_lane(self) -> ScriptedLane | None:
        return ScriptedLane(self) if len(self.lanes) < self.most_lanes else None

    def encoder(self) -> Encoder | None:
        return self.words

    def fit(self, turns: Sequence[Turn], reserve: int) -> Fitted:
        if turns[-1].content.startswith("unfit"):
            raise RuntimeError(f"cannot fit {turns[-1].content!r}")
        return self.renderer.fit(
            turns, self.info.context, reserve, max((self.info.context - reserve) // STEPS, 1)
        )

    def continuation(self, text: str) -> list[int]:
        return self.renderer.unfinished(text)

    def is_end(self, token: int) -> bool:
        return token == END

    def piece(self, token: int) -> bytes:
        return self.vocab.piece(token)

    def close(self) -> None:
        self.closed = True


class ScriptedLane:
    """Implements `app.host.runtime.Lane`."""

    def __init__(self, runtime: ScriptedRuntime) -> None:
        self.runtime = runtime
        self.sequences = runtime.sequences
        self.held: list[list[int]] = [[] for _ in range(self.sequences)]
        self.computed_by: list[list[str | None]] = [[] for _ in range(self.sequences)]
        self.computed_in: list[list[tuple[int, int]]] = [[] for _ in range(self.sequences)]
        self.last = 0
        self.attached: str | None = None
        self.interrupted = threading.Event()
        self.closed = False
        runtime.lanes.append(self)

    def attach(self, adapter: Path | None, scale: float) -> None:
        if adapter is not None and adapter.read_bytes() == BROKEN:
            raise AdapterFileError("its numbers are not numbers")
        self.attached = None if adapter is None else f"{adapter.parent.name}*{scale:g}"

    def evaluate(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        assert not self.closed
        assert 0 < len(tokens) <= self.runtime.chunk
        assert position == len(self.held[sequence]), "positions must follow on one another"
        assert position + len(tokens) <= self.runtime.info.context
        assert set(self.computed_by[sequence]) <= {self.attached}, "what another version computed is no use"
        self._compute(self.runtime.batch_seconds if len(tokens) > 1 else self.runtime.token_seconds)
        self.held[sequence] += tokens
        self.computed_by[sequence] += [self.attached] * len(tokens)
        self.computed_in[sequence] += [(place, len(tokens)) for place in range(len(tokens))]
        self.last = sequence
        self.runtime.evaluated.append((sequence, position, len(tokens)))

    def _compute(self, seconds: float) -> None:
        """Take so long, and end within a hundredth of a second when interrupted."""
        ticks = int(seconds / _TICK + 1e-6)
        for _ in range(ticks):
            if self.interrupted.is_set():
                raise BrokenOff
            self.runtime.pause(_TICK)
        rest = seconds - ticks * _TICK
        if rest > 1e-6:
            self.runtime.pause(rest)
        if self.interrupted.is_set():
            raise BrokenOff

    def interrupt(self) -> None:
        self.interrupted.set()

    def proceed(self) -> None:
        self.interrupted.clear()

    def sampler(self, sampling: Sampling, grammar: str | None, after: str | None = None) -> ScriptedSampler:
        self.runtime.samplings.append(sampling)
        self.runtime.grammars.append(grammar if after is None else f"after {after}: {grammar}")
        self.runtime.drawn_from.append((list(self.held[self.last]), list(self.computed_in[self.last])))
        return ScriptedSampler(self, self.runtime.grammars[-1])

    def truncate(self, sequence: int, length: int) -> None:
        del self.held[sequence][length:]
        del self.computed_by[sequence][length:]
        del self.computed_in[sequence][length:]

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        self.held[target] = self.held[source][:length]
        self.computed_by[target] = self.computed_by[source][:length]
        self.computed_in[target] = self.computed_in[source][:length]

    def save(self, sequence: int) -> bytes:
        return json.dumps(
            [self.held[sequence], self.computed_by[sequence], self.computed_in[sequence]]
        ).encode()

    def restore(self, sequence: int, state: bytes) -> None:
        self.held[sequence], self.computed_by[sequence], computed_in = json.loads(state)
        self.computed_in[sequence] = [(place, size) for place, size in computed_in]

    def clear(self) -> None:
        self.held = [[] for _ in range(self.sequences)]
        self.computed_by = [[] for _ in range(self.sequences)]
        self.computed_in = [[] for _ in range(self.sequences)]

    def close(self) -> None:
        self.closed = True
        self.runtime.lanes.remove(self)

    def asked(self) -> tuple[str, int]:
        """The last message of the user in the last evaluated sequence, and how many turns it holds."""
        tokens = self.held[self.last]
        starts = [index for index, token in enumerate(tokens) if token == START]
        user = self.runtime.vocab.text(tokens[starts[-2] : starts[-1]])
        return user.removeprefix("user\n").rstrip("\n"), len(starts) - 1

    def asked_before(self) -> str:
        """The message of the user before the last one."""
        tokens = self.held[self.last]
        starts = [index for index, token in enumerate(tokens) if token == START]
        return self.runtime.vocab.text(tokens[starts[-4] : starts[-3]]).removeprefix("user\n")

    def pieces_said(self) -> int:
        """How many pieces of its reply the last evaluated sequence holds already."""
        tokens = self.held[self.last]
        opened = max(index for index, token in enumerate(tokens) if token == START)
        return sum(token >= FIRST_PIECE for token in tokens[opened:])

    def system(self) -> str:
        """The system prompt in the last evaluated sequence."""
        tokens = self.held[self.last]
        return self.runtime.vocab.text(tokens[: tokens.index(END)]).removeprefix("system\n")

    def _meant(self, given: str) -> str:
        """The command in a message, without the memories before it; another one where a guard asks again."""
        asked = without_block(given)
        if asked.startswith(REFUSED):
            before = without_block(self.asked_before()).rstrip("\n")
            return before if before.startswith("stubborn ") else "echo fine"
        return f"echo {given}" if asked.startswith("prompt ") else asked

    def script(self, grammar: str | None) -> Iterator[bytes]:
        """The pieces of the reply to what is in the last evaluated sequence."""
        given, turns = self.asked()
        asked = self._meant(given)
        command, _, rest = asked.partition(" ")
        if command in ("echo", "stubborn"):
            yield from _words(rest)
        elif command == "bytes":
            yield from (bytes([byte]) for byte in rest.encode())
        elif command == "spell":
            yield from (b"fine", b"<|im", b"_en", b"d|>", b"never")
        elif command == "version":
            yield (self.attached or "base").encode()
        elif command == "quote":
            raise RuntimeError(f"cannot answer {asked!r}")
        elif command == "grammar":
            yield (grammar or "none").encode()
        elif command == "system":
            yield self.system().encode()
        elif command == "raw":
            yield from (rest[start : start + 10].encode() for start in range(0, len(rest), 10))
        elif command == "turns":
            yield str(turns).encode()
        elif command in _PACE:
            yield from _numbers(command, _first_number(rest), self.runtime.pause)
        else:
            yield from _words(f"You said: {asked}")


_TICK = 0.01
_ENDLESS = 10**9
_PACE = {"count": 0.0, "slow": 0.05, "hang": 1.0, "forever": 0.002, "fail": 0.0, "memory": 0.0}


def _first_number(text: str) -> int:
    """The first number after a command: messages of one role are joined, so more may follow. Endless without one."""
    found = re.search(r"\d+", text)
    return int(found[0]) if found else _ENDLESS


def _numbers(command: str, count: int, pause: Callable[[float], None]) -> Iterator[bytes]:
    for number in range(1, count + 1):
        pause(_PACE[command])
        yield f"{number} ".encode()
    if command == "fail":
        raise RuntimeError("the script says so")
    if command == "memory":
        raise MemoryError


def _words(text: str) -> Iterator[bytes]:
    for index, word in enumerate(text.split(" ")):
        yield (f" {word}" if index else word).encode()


class ScriptedSampler:
    """Says what the lane's script says."""

    def __init__(self, lane: ScriptedLane, grammar: str | None) -> None:
        self._vocab = lane.runtime.vocab
        # A reply that goes on with another has its first pieces already.
        self._script = islice(lane.script(grammar), lane.pieces_said(), None)

    def sample(self) -> tuple[int, float]:
        piece = next(self._script, None)
        return (END, -0.5) if piece is None else (self._vocab.token_of(piece), -0.25)

    def likeliest(self, count: int) -> list[tuple[int, float]]:
        return [(ord("a") + place, -0.5 - place) for place in range(count)]

    def close(self) -> None:
        """Nothing to free."""


@contextlib.contextmanager
def scripted_host(home: Home, *options: str) -> Iterator[HostClient]:
    """A real host process on the scripted model; stopped at the end. ``options`` go to `tests.scripted_host`."""
    process = subprocess.Popen(
        [*HOST_COMMAND, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=SOURCE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        with process.stdout as pipe:
            line = json.loads(pipe.readline())
        assert "ready" in line, line
        client = running_host(home)
        assert client is not None
        yield client
    finally:
        with contextlib.suppress(Exception):
            stop_host(home)
        process.kill()
        process.wait()


HOST_COMMAND = [sys.executable, "-m", "tests.scripted_host"]
"""What `app.host.client.host_command` is replaced with where a test wants hosts started on demand."""
