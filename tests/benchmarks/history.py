"""Fills a store with years of use, fast: any number of messages, of the same make whatever the number.

Rows are written with plain SQL in large transactions, past the functions that the chat uses, but with every trigger
in place, so that the full-text index and the judge's backlog are those of real use. What varies is what indexes and
query plans feel: words after Zipf with a long tail of names and numbers, Korean, code, sizes from one character to
tens of thousands, conversations from two messages to hundreds, branches, ratings, imported chats that may not teach,
token arrays as long as the conversation before them. The same seed gives the same history.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from store.conversations import path_hash, title_from
from store.db import Store
from store.exchange.drafts import digest
from store.types import Consent, MessageStatus, Role

CHUNK = 20_000
BASE = "b" * 64
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_BEGAN = datetime(2020, 1, 1, tzinfo=UTC)
_VOCABULARY = 30_000
_TOKENS = 6_000
_USES = ("trained", "replayed", "replayed")
_COMMON = (
    "the of and to a in is that it was for on are with as be at this have from or had by but not what all were "
    "when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made "
    "over did down only way find use may water long little very after words called just where most know"
).split()
_SYLLABLES = (
    "ba ce di fo gu ha ji ko lu me na or pi qua re si ta un ver wo xi ya zen tri str on al ing ion er".split()
)
_KOREAN = (
    "나는 우리는 친구가 오늘 어제 내일 회사에서 집에서 한국어로 이 문장을 그 코드를 새로운 작은 빨리 천천히 다시 같이 "
    "커피를 책을 날씨가 여행을 프로그램을 데이터베이스를 질문이 대답이 검색을 학습을 모델이 메시지를 아침에 저녁에 서울에서 "
    "부산까지 정말 아주 조금 많이 왜 어떻게 언제 누가 무엇을"
).split()
_ENDINGS = "했어요 합니다 할까요 해 주세요 좋아요 몰라요 봤습니다 되나요 네 응 고마워요 알겠습니다".split()
_CODE = (
    "def {0}({1}):\n    return {1} + {2}\n",
    "for (int {0} = 0; {0} < {2}; ++{0}) {{ {1}[{0}] = {2}; }}\n",
    "SELECT {0}, {1} FROM {1}_{0} WHERE {0} > {2};\n",
    "std::vector<int> {0}; // C++ {1}\n",
    "{0}.{1}(lambda x: x * {2})\n",
)
# Words drawn one by one meet far more rarely than they do in sentences: what people say often comes as a whole.
# In two million words of documentation "it is the" stood 37 times per million.
_SAYING, _SAYINGS_PER_WORD = ("it", "was", "the"), 40e-6
_ASIDES = ("it's", "don't", "foo-bar", "C++", "e.g.", "state-of-the-art", "naïve", "100 %")


@dataclass
class Rows:
    """What goes into one transaction, by table."""

    conversations: list[Sequence[Any]] = field(default_factory=list)
    messages: list[Sequence[Any]] = field(default_factory=list)
    origins: list[Sequence[Any]] = field(default_factory=list)
    signals: list[Sequence[Any]] = field(default_factory=list)
    units: list[Sequence[Any]] = field(default_factory=list)
    uses: list[Sequence[Any]] = field(default_factory=list)
    judged: list[Sequence[Any]] = field(default_factory=list)
    events: list[Sequence[Any]] = field(default_factory=list)


_TABLES: dict[str, tuple[str, str]] = {
    "conversations": (
        "conversations",
        "id, title, created, updated, source, head, keep_history, feed_memory, train",
    ),
    "messages": (
        "messages",
        (
            "id, conversation, parent, role, text, status, created, finished, path_hash, base_hash, adapter, "
            "scale, sampler, template, context_items, context_hash, prompt_tokens, completion_tokens, logprobs, "
            "finish_reason, usage, timings, left_out"
        ),
    ),
    "origins": ("origins", "message, origin, model"),
    "signals": ("signals", "id, message, kind, value, text, source, confidence, created"),
    "units": (
        "units",
        "id, message, conversation, kind, reward, target, weight, state, signals, content_hash, created, updated",
    ),
    "uses": ("unit_uses", 'unit, adapter, "use", content_hash'),
    "judged": ("judged", "message, created, verdict"),
    "events": (
        "events",
        "id, conversation, message, kind, created, observation, harness, action, outcome, metadata, replay",
    ),
}


class Words:
    """Texts of every kind. ``rng`` decides, so that a seed is a history."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        made = {"".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 4))) for _ in range(_VOCABULARY)}
        self._words = [*_COMMON, *sorted(made)]
        self._weights = list(itertools.accumulate(1 / (rank + 2) for rank in range(len(self._words))))

    def question(self) -> str:
        """What an owner types: mostly a line, sometimes a word, now and then a pasted document."""
        kind = self._rng.random()
        if kind < 0.03:
            return self._rng.choice(("네", "응", "ok", "?", "좋아", "yes", "Go on.", "왜?"))
        if kind < 0.04:
            return self._prose(self._size(3_000, 0.9))
        if kind < 0.25:
            return self._korean(self._size(35, 0.6))
        return self._prose(self._size(70, 0.7)).rstrip(".") + "?"

    def reply(self) -> str:
        """What a model answers: paragraphs, a fifth of them Korean, a tenth with code."""
        kind = self._rng.random()
        size = self._size(260, 0.8)
        if kind < 0.2:
            return self._korean(size // 2)
        if kind < 0.3:
            return f"{self._prose(size // 2)}\n\n```\n{self._code(size // 2)}```"
        return self._prose(size)

    def word(self) -> str:
        """One word of the tail."""
        return self._rng.choice(self._words[2_000:])

    def _size(self, median: int, spread: float) -> int:
        return int(min(median * math.exp(self._rng.gauss(0, spread)), 40_000))

    def _prose(self, size: int) -> str:
        words = self._rng.choices(self._words, cum_weights=self._weights, k=max(size // 5, 1))
        for place in range(self._rng.randint(6, 14), len(words), self._rng.randint(7, 15)):
            words[place] += "."
        if self._rng.random() < _SAYINGS_PER_WORD * len(words):
            words[1:1] = _SAYING
        if self._rng.random() < 0.2:
            words[self._rng.randrange(len(words))] = self._rng.choice(_ASIDES)
        if self._rng.random() < 0.3:
            words.append(f"#{self._rng.randrange(10_000_000)}")
        return " ".join(words).capitalize() + "."

    def _korean(self, size: int) -> str:
        made = [
            " ".join((*self._rng.choices(_KOREAN, k=self._rng.randint(2, 7)), self._rng.choice(_ENDINGS)))
            for _ in range(max(size // 22, 1))
        ]
        if self._rng.random() < 0.2:
            made[0] += " " + "".join(chr(self._rng.randint(0xAC00, 0xD7A3)) for _ in range(3))
        return ". ".join(made)

    def _code(self, size: int) -> str:
        lines = [
            self._rng.choice(_CODE).format(self.word(), self.word(), self._rng.randrange(1000))
            for _ in range(max(size // 45, 1))
        ]
        return "".join(lines)


class History:
    """Writes one history. ``rounds`` of learning grow with it: one for every two thousand messages."""

    def __init__(self, store: Store, messages: int, seed: int = 0) -> None:
        self._store = store
        self._wanted = messages
        self._rng = random.Random(seed)
        self._words = Words(self._rng)
        self._random = self._rng.randbytes(_TOKENS * 8)
        self._logprobs = array("f", [-self._rng.expovariate(1.0) for _ in range(_TOKENS)]).tobytes()
        self._written = 0
        self._adapters: list[str] = []

    def write(self, told: Callable[[float], None]) -> None:
        """Fill the store. ``told`` hears the share that is done."""
        connection = self._store.conn
        # A benchmark's data may be lost in a power cut: it is made again.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -400000")
        self._learned()
        while self._written < self._wanted:
            rows = self._some(min(CHUNK, self._wanted - self._written))
            with self._store.write():
                connection.execute("PRAGMA defer_foreign_keys = ON")
                for name, (table, columns) in _TABLES.items():
                    marks = ", ".join("?" * (columns.count(",") + 1))
                    connection.executemany(
                        f"INSERT INTO {table} ({columns}) VALUES ({marks})", getattr(rows, name)
                    )
            told(self._written / self._wanted)

    def _some(self, count: int) -> Rows:
        rows, end = Rows(), self._written + count
        while self._written < end:
            self._conversation(rows, min(end - self._written, self._length()))
        return rows

    def _length(self) -> int:
        """Messages of a conversation: half have six or fewer, one in a hundred more than 150."""
        return int(min(2 * math.exp(self._rng.gauss(1.2, 1.1)) + 2, 400))

    def _conversation(self, rows: Rows, length: int) -> None:
        conversation, imported = self._id("c"), self._rng.random() < 0.3
        began = self._moment()
        parent: str | None = None
        hashed, tokens, head, title = "", 60, None, ""
        for number in range(length):
            self._written += 1
            moment = self._moment()
            asks = number % 2 == 0
            text = self._words.question() if asks else self._words.reply()
            title = title or title_from(text)
            message = self._id("m")
            before = hashed
            hashed = path_hash(before, Role.USER if asks else Role.ASSISTANT, text)
            length_tokens = len(text) // 4 + 1
            if asks:
                rows.messages.append(_plain(message, conversation, parent, Role.USER, text, moment, hashed))
            elif imported:
                rows.messages.append(
                    _plain(message, conversation, parent, Role.ASSISTANT, text, moment, hashed)
                )
            else:
                rows.messages.append(
                    self._reply(message, conversation, parent, text, moment, hashed, tokens, length_tokens)
                )
                self._reactions(rows, conversation, message, moment, number + 1 < length)
            if imported:
                rows.origins.append((message, digest(conversation, message), None if asks else "gpt-4o"))
            tokens += length_tokens + 5
            # One reply in twenty is made again: the conversation goes on from the second.
            if not (asks and parent is not None and self._rng.random() < 0.05):
                parent = message
            head = message
        source = "import:chatgpt" if imported else "chat"
        allowed = Consent.DENY if imported else Consent.ALLOW
        rows.conversations.append(
            (conversation, title, began, self._moment(), source, head, Consent.ALLOW, allowed, allowed)
        )

    def _reply(
        self,
        message: str,
        conversation: str,
        parent: str | None,
        text: str,
        moment: str,
        hashed: str,
        before: int,
        length: int,
    ) -> Sequence[Any]:
        prompt, completion = self._tokens(min(before, 2_000)), self._tokens(min(length, 1_000))
        usage = {"prompt_tokens": before, "completion_tokens": length, "total_tokens": before + length}
        return (
            message,
            conversation,
            parent,
            Role.ASSISTANT,
            text,
            MessageStatus.COMPLETE,
            moment,
            moment,
            hashed,
            BASE,
            self._adapters[self._round],
            1.0,
            '{"seed": 7, "temperature": 0.7}',
            "template",
            "[]",
            sha256(prompt).hexdigest(),
            prompt,
            completion,
            self._logprobs[: len(completion)],
            "stop",
            json.dumps(usage),
            '{"first_token": 0.2, "total": 3.1, "tokens_per_second": 41.0}',
            0,
        )

    def _reactions(self, rows: Rows, conversation: str, message: str, moment: str, went_on: bool) -> None:
        rows.events.append(
            (
                self._id("e"),
                conversation,
                message,
                "model_call",
                moment,
                *('{"version": 1}',) * 5,
                "deterministic",
            )
        )
        if went_on:
            rows.judged.append((message, moment, "{}"))
        if self._rng.random() > 0.02:
            return
        signal, unit, content = self._id("s"), self._id("u"), self._rng.randbytes(32).hex()
        text = self._words.question() if self._rng.random() < 0.5 else None
        kind, value = ("correction", None) if text else ("thumb", self._rng.choice((1.0, -1.0)))
        rows.signals.append((signal, message, kind, value, text, "user", 1.0, moment))
        # The last few ratings of any history wait; what came before was learned.
        state = "queued" if self._wanted - self._written < 150 else "used"
        rows.units.append(
            (
                unit,
                message,
                conversation,
                "correction" if text else "thumb_up",
                1.0,
                text,
                1.0,
                state,
                json.dumps([signal]),
                content,
                moment,
                moment,
            )
        )
        if state == "used":
            # Learned in the round of its time, and replayed in the two after it.
            for use, adapter in zip(_USES, self._adapters[self._round :], strict=False):
                rows.uses.append((unit, adapter, use, content))

    def _learned(self) -> None:
        """The rounds of learning: a run, an adapter and its turn at the front for each."""
        with self._store.write() as connection:
            for version in range(1, max(self._wanted // 2_000, 3) + 1):
                adapter, run, moment = self._rng.randbytes(6).hex(), self._id("r"), self._moment()
                manifest = json.dumps({"units": [self._id("u") for _ in range(40)], "seed": 1})
                connection.execute(
                    "INSERT INTO adapters (id, version, base_hash, state, created, run, manifest, gate) "
                    "VALUES (?, ?, ?, 'retired', ?, ?, ?, '{}')",
                    (adapter, version, BASE, moment, run, manifest),
                )
                connection.execute(
                    "INSERT INTO activations (created, base_hash, adapter, scale, actor, reason) "
                    "VALUES (?, ?, ?, 1.0, 'gate', 'better')",
                    (moment, BASE, adapter),
                )
                connection.execute(
                    'INSERT INTO learning_runs (id, "trigger", state, outcome, created, started, finished, attempts, '
                    "fraction, note, result) VALUES (?, 'idle', 'done', 'promoted', ?, ?, ?, 1, 1.0, '', '{}')",
                    (run, moment, moment, moment),
                )
                self._adapters.append(adapter)
            connection.execute("UPDATE adapters SET state = 'active' WHERE id = ?", (self._adapters[-1],))

    @property
    def _round(self) -> int:
        return len(self._adapters) * self._written // (self._wanted + 1)

    def _moment(self) -> str:
        # Six years, whatever the number of messages; the microseconds keep times apart.
        share = self._written / self._wanted
        return (_BEGAN + timedelta(days=2200 * share, microseconds=self._rng.randrange(10**6))).isoformat(
            timespec="microseconds"
        )

    def _tokens(self, count: int) -> bytes:
        start = self._rng.randrange(_TOKENS) * 4
        return self._random[start : start + 4 * count]

    def _id(self, kind: str) -> str:
        bits = self._rng.getrandbits(50)
        return kind + "".join(_DIGITS[(bits >> shift) & 31] for shift in range(0, 50, 5))


def _plain(
    message: str, conversation: str, parent: str | None, role: Role, text: str, moment: str, hashed: str
) -> Sequence[Any]:
    finished = (message, conversation, parent, role, text, MessageStatus.COMPLETE, moment, moment, hashed)
    return (*finished, *(None,) * 13, 0)
