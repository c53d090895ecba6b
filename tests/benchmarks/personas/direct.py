"""Mynah without its host as the subject of a trial: its store, its model file and its learner's round, in one process.

Through a host a cell takes ten minutes, most of it replies written one after the other and libraries loaded anew. Here
they are written together (`written`) with the version that is live and entered into the history as a host enters them, and
a round is the learner's own, `learner.loop.carry_out`: judge, teacher, training, gate and going live. Left out are the host,
the wait for it and the start of the learner, so seconds are those of a learner that is warm; what is learned is the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Self

from app.model import catalogue, convert
from app.model.llama import ContextSettings, LlamaAdapter, LlamaModel
from app.model.renderer import Renderer, Turn
from learner import loop
from learner.yielding import Yielding, usable_threads
from store import adapters, conversations, runs, settings
from store.adapters import Adapter
from store.conversations import ReplyEnd, ReplyStart
from store.home import Home
from store.types import FinishReason, MessageStatus, Role, Trigger
from tests.benchmarks import ability
from tests.benchmarks.personas import ablated
from tests.benchmarks.personas.owned import Owned
from tests.benchmarks.personas.plan import Method
from tests.benchmarks.personas.subject import OWN_LEARNER, learned_of
from tests.benchmarks.personas.trial import Learned, Reply
from tests.benchmarks.personas.written import MAX_TOKENS, Memo, Writer, Written
from tests.leases import Free


class Bench:
    """The model file, loaded once for all cells. Use as a context manager."""

    def __init__(self, model: str | None, memo: Path) -> None:
        self.model_name = model
        self._memo_path = memo

    def __enter__(self) -> Self:
        self.base = catalogue.resolve(Home.default().open(), self.model_name)
        self.served_path = convert.served_form(self.base)
        self.served = LlamaModel.load(self.served_path)
        self.memo = Memo(self._memo_path, self.base.base_hash)
        return self

    def __exit__(self, *_: object) -> None:
        self.served.close()

    def subject(self, root: Path, method: Method) -> Direct:
        """The subject of one trial."""
        return Direct(self, root, method)

    def ability(self, renderer: Renderer, adapter: LlamaAdapter | None) -> float:
        """Share of the sixty four-way questions; the bare model's is kept."""
        told = renderer.prompt([Turn(Role.USER, "")])
        known = self.memo.get("ability", told) if adapter is None else None
        if isinstance(known, float):
            return known
        threads = usable_threads()
        shape = ContextSettings(ability.CONTEXT, ability.SEQUENCES, threads, threads, ability.CONTEXT)
        with closing(self.served.context(shape)) as context:
            context.set_adapter(adapter)
            share = ability.accuracy(context, renderer)
        if adapter is None:
            self.memo.keep(share, "ability", told)
        return share


class Direct(Owned):
    """One home. Use as a context manager."""

    def __init__(self, bench: Bench, root: Path, method: Method) -> None:
        super().__init__(root, method, bench.model_name)
        self._bench = bench
        self._store = self._service.store
        self._said: dict[str, Written] = {}
        self._expected: list[str] = []
        self._live: tuple[Adapter, LlamaAdapter] | None = None
        self._reread()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live[1].close()
        self._service.close()

    def expect(self, questions: Sequence[str]) -> None:
        """Write the replies to all of them, so that `ask` and `answer` have them."""
        self._expected = list(questions)
        new = [question for question in dict.fromkeys(questions) if question not in self._said]
        replies = self._writer.write([self._prompt(question) for question in new], self._adapter)
        self._said.update(zip(new, replies, strict=True))

    def ask(self, question: str, seed: int) -> Reply:
        """A question in a conversation of its own, with its reply, as the host enters them."""
        said = self._reply(question)
        store = self._store
        live = None if self._live is None else self._live[0].id
        conversation = conversations.create(store, conversations.title_from(question), "cli")
        asked = conversations.append_user(store, conversation, question, None)
        start = ReplyStart(
            self._bench.base.base_hash,
            live,
            1.0,
            {"temperature": 0.0, "seed": seed, "max_tokens": MAX_TOKENS},
            self._renderer.fingerprint,
            self._prompt(question),
        )
        reply = conversations.begin_reply(store, conversation, asked.id, start)
        why = FinishReason.STOP if said.ended else FinishReason.LENGTH
        conversations.finish_reply(
            store, reply.id, ReplyEnd(said.text, MessageStatus.COMPLETE, why, said.tokens)
        )
        return Reply(reply.id, conversation, said.text)

    def say(self, conversation: str, text: str, seed: int) -> None:
        """Go on in a conversation; nothing follows that."""
        head = conversations.get(self._store, conversation).head
        conversations.append_user(self._store, conversation, text, head)

    def remember(self, rule: str) -> None:
        """Put the rule into what the model is told before every conversation."""
        self._tell(rule)
        self._reread()

    def answer(self, question: str, seed: int) -> str:
        """A reply that leaves nothing behind."""
        return self._reply(question).text

    def learn(self) -> Learned:
        """A round, and what it took."""
        began, before = time.monotonic(), time.process_time()
        with self._method_applied():
            asked = runs.request(self._store, Trigger.MANUAL)
            run = runs.claim(self._store, os.getpid())
            assert run is not None
            loop.carry_out(self._store, run, Yielding(Free()))
        learned = learned_of(
            runs.get(self._store, asked.id), time.monotonic() - began, time.process_time() - before
        )
        self._reload()
        return learned

    def ability(self) -> float:
        """Share of the sixty four-way questions."""
        return self._bench.ability(self._renderer, self._adapter)

    @property
    def _adapter(self) -> LlamaAdapter | None:
        return None if self._live is None else self._live[1]

    def _method_applied(self) -> ablated.Applied:
        if self._method not in OWN_LEARNER:
            return nullcontext()
        return ablated.applied(self._method, lambda: ablated.tokenizer_of(self._bench.served_path))

    def _reply(self, question: str) -> Written:
        if question not in self._said:
            later = self._expected[self._expected.index(question) :] if question in self._expected else []
            self.expect(later or [question])
        return self._said[question]

    def _prompt(self, question: str) -> list[int]:
        return self._renderer.prompt([Turn(Role.USER, question)])

    def _reread(self) -> None:
        """What the model is told has changed: nothing that was written holds any more."""
        served = self._bench.served
        told = settings.get(self._store, settings.SYSTEM_PROMPT)
        self._renderer = Renderer(served.vocab, served.chat_template, told)
        self._writer = Writer(served, self._bench.memo, self._renderer.stop_ids)
        self._said.clear()

    def _reload(self) -> None:
        """Take what is live now."""
        serving = adapters.active(self._store, self._bench.base.base_hash).adapter
        if (None if serving is None else serving.id) == (None if self._live is None else self._live[0].id):
            return
        if self._live is not None:
            self._live[1].close()
            self._live = None
        if serving is not None:
            path = adapters.files(self._store, serving.id) / adapters.GGUF_NAME
            self._live = (serving, self._bench.served.load_adapter(path))
        self._said.clear()
