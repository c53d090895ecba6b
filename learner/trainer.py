"""One LoRA over the frozen base, trained anew each round from the ledger; never merged, never continued.

Adapters merged one after another end below the untouched base (see README of the benchmarks for sources), so a
round starts from zero with all that is to be learned: the new units and replayed earlier ones. It stops by
evidence, not after a fixed number of epochs: when the corrections are learned, when held-out units have stopped
getting better, when the drift on neutral text is used up, or when its tokens are. What was measured for each
number stands in tests/benchmarks/README.md.

The combined objective per example: a correction is likelihood of the owner's text, weighted by what the owner
changed, plus a bounded preference against the rejected reply; a hinted reply is forward KL to the hinted base on
the teacher's accepted replies plus reverse KL on the reply's own tokens; a bare thumb is APO-zero. Every step
also holds the model to the base on a neutral passage.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from torch import Tensor

from learner import activations, objectives, scoring
from learner.activations import Activations
from learner.examples import Example, Target, rejected_window
from learner.likeliest import TOP_K
from learner.objectives import Term, Terms
from learner.positions import Measure, Positions
from learner.yielding import Yielding, decoder_layers

ADAPTER = "default"
_TARGET_MODULES = "all-linear"


class Stop(StrEnum):
    """Why training ended."""

    LEARNED = "learned"
    HELD_OUT = "held-out units stopped improving"
    DRIFT = "drift budget used up"
    TOKENS = "token budget used up"
    EPOCHS = "epoch limit"


@dataclass(frozen=True)
class TrainSettings:
    """The recipe. ``batch``: examples per optimiser step. ``pass_tokens``: how many tokens, padding included, may share
    one micro-batch of it; a longer example has one of its own. ``token_budget`` is over the whole round.
    """

    rank: int = 16
    alpha: int = 32
    learning_rate: float = 8e-4
    warmup_steps: int = 2
    batch: int = 4
    pass_tokens: int = 768
    min_epochs: int = 3
    max_epochs: int = 12
    token_budget: int = 5_000
    learned_loss: float = 0.35
    drift_budget: float = 0.15
    held_out_fall: float = 0.75
    gradient_clip: float = 1.0
    beta: float = 0.1
    top_k: int = TOP_K
    preference_reach: int = 16
    seed: int = 0
    weights: dict[Term, float] = field(
        default_factory=lambda: {
            Term.NLL: 1.0,
            Term.PREFERENCE: 0.3,
            Term.BINARY: 1.0,
            Term.DISTILL: 1.0,
            Term.ON_POLICY: 0.2,
            Term.ANCHOR: 1.0,
        }
    )


@dataclass
class Metrics:
    """What a round saw of itself, for the manifest and the benchmarks."""

    steps: int = 0
    epochs: int = 0
    tokens: int = 0
    stopped_by: Stop = Stop.EPOCHS
    losses: list[float] = field(default_factory=list)
    drift: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


OWN = -1
"""The number of the reply as it was given, beside those of the accepted ones."""
ANCHOR_COMPANY = 2.0
"""How many times longer than the anchor passage its company in one padded pass may be."""

Told = Callable[[float, str], None]
Parts = dict[str, scoring.Sequence2]


class Trainer:
    """Trains one adapter. ``anchors`` are token ids of neutral passages, ``room`` the bytes that a pass may take."""

    def __init__(
        self,
        base: Any,
        settings: TrainSettings,
        anchors: Sequence[Sequence[int]],
        yielding: Yielding,
        told: Told,
        room: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._room = room
        self._yielding = yielding
        self._told = told
        self._anchors = [scoring.passage(tokens) for tokens in anchors]
        self._anchor_base: dict[int, Positions] = {}
        self._base_logprobs: dict[tuple[str, str], Tensor] = {}
        self._teacher: dict[tuple[str, int], Positions] = {}
        self.metrics = Metrics()
        self.model = with_adapter(base, settings)

    def run(self, examples: Sequence[Example], held_out: Callable[[], float | None]) -> Metrics:
        """Train until one of the stops; ``held_out`` gives the present gain on held-out units (higher is better)."""
        settings = self._settings
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimiser = torch.optim.AdamW(
            parameters, lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        order = random.Random(settings.seed)
        if self._activations(examples) is Activations.RECOMPUTED:
            activations.recompute(self.model)
        with self._yielding.inside(decoder_layers(self.model)):
            for epoch in range(settings.max_epochs):
                self._epoch(epoch, self._drawn(examples, epoch), order, optimiser, parameters)
                stop = self._stop(held_out())
                if stop is not None:
                    self.metrics.stopped_by = stop
                    break
        self.model.eval()
        return self.metrics

    def _activations(self, examples: Sequence[Example]) -> Activations:
        """Whether the largest pass of these examples has room for what its layers make."""
        alone = [group for example in examples for group in self._groups([example])]
        largest = max((_longest(group) * _sequences(group) for group in alone), default=0)
        tokens = max(self._settings.pass_tokens, largest)
        width = next(self.model.parameters()).element_size()
        config = self.model.get_base_model().config
        needed = activations.kept_bytes(config, tokens, self._settings.rank, width)
        return activations.choose(needed, self._room())

    def _drawn(self, examples: Sequence[Example], epoch: int) -> list[Example]:
        """What an epoch goes over: of approvals no more than of the rest, in turn, one batch at the least.

        Most replies are liked, and a like teaches to go on as before: twelve beside three corrections were the whole
        lesson, since their long replies use up the tokens. (KTO asks for shares between 1:1 and 4:3, arXiv 2402.01306.)
        """
        approved = [example for example in examples if example.kind.approves]
        others = [example for example in examples if not example.kind.approves]
        room = max(len(others), self._settings.batch)
        if not others or len(approved) <= room:
            return list(examples)
        first = epoch * room
        return others + [approved[(first + place) % len(approved)] for place in range(room)]

    def _epoch(
        self,
        epoch: int,
        examples: list[Example],
        order: random.Random,
        optimiser: torch.optim.Optimizer,
        parameters: list[torch.nn.Parameter],
    ) -> None:
        settings = self._settings
        self.model.train()
        order.shuffle(examples)
        losses, drifts = [], []
        count = math.ceil(len(examples) / settings.batch)
        for index in range(count):
            batch = examples[index * settings.batch : (index + 1) * settings.batch]
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * min(
                    1.0, (self.metrics.steps + 1) / settings.warmup_steps
                )
            fit, drift = self._backward(batch, self.metrics.steps % max(len(self._anchors), 1))
            torch.nn.utils.clip_grad_norm_(parameters, settings.gradient_clip)
            optimiser.step()
            optimiser.zero_grad()
            losses.append(fit)
            drifts.append(drift)
            self.metrics.steps += 1
            self._told(self._done(epoch + (index + 1) / count), f"epoch {epoch + 1}, loss {fit:.2f}")
        self.metrics.epochs += 1
        self.metrics.losses.append(sum(losses) / len(losses))
        self.metrics.drift.append(sum(drifts) / len(drifts))

    def _done(self, epochs: float) -> float:
        """Share of the round that is over, 0 to 1, by whichever limit is nearer."""
        settings = self._settings
        return min(1.0, max(epochs / settings.max_epochs, self.metrics.tokens / settings.token_budget))

    def _stop(self, gain: float | None) -> Stop | None:
        metrics, settings = self.metrics, self._settings
        if gain is not None:
            metrics.held_out.append(gain)
        if metrics.drift[-1] > settings.drift_budget:
            return Stop.DRIFT
        if metrics.epochs < settings.min_epochs:
            return None
        if metrics.losses[-1] < settings.learned_loss:
            return Stop.LEARNED
        if metrics.tokens >= settings.token_budget:
            return Stop.TOKENS
        return Stop.HELD_OUT if self._overdone() else None

    def _overdone(self) -> bool:
        """Whether held-out units clearly got worse.

        With one unit, small falls are noise: stopping at the first ended a round far too early (see README).
        """
        gains = self.metrics.held_out
        return len(gains) >= 3 and max(gains[-2:]) < self._settings.held_out_fall * max(gains)

    def _backward(self, examples: Sequence[Example], anchor: int) -> tuple[float, float]:
        """Add one optimiser step's gradient; returns the examples' mean fit and the drift on the anchor passage."""
        total = sum(example.weight for example in examples) or 1.0
        passes: list[tuple[list[tuple[Example, Parts]], int | None]] = [
            (group, None) for group in self._groups(examples)
        ]
        if self._anchors and self._settings.weights[Term.ANCHOR] > 0.0:
            first = passes[0][0]
            prompt, said = self._anchors[anchor]
            if _longest(first) <= ANCHOR_COMPANY * (len(prompt) + len(said)):
                passes[0] = (first, anchor)
            else:
                # Padded to sequences this much longer, the anchor would cost more than a pass of its own does.
                passes.append(([], anchor))
        fit = drift = 0.0
        for group, anchored_to in passes:
            self._yielding.border()
            fitted, drifted = self._pass(group, total, anchored_to)
            fit += fitted
            drift += drifted
        return fit / total, drift

    def _groups(self, examples: Sequence[Example]) -> list[list[tuple[Example, Parts]]]:
        """The examples with their sequences, in groups that one forward pass has memory for."""
        groups: list[list[tuple[Example, Parts]]] = [[]]
        longest = count = 0
        for example in examples:
            parts = self._parts(example)
            longest = max([longest, *(len(prompt) + len(said) for prompt, said in parts.values())])
            count += len(parts)
            if groups[-1] and longest * count > self._settings.pass_tokens:
                groups.append([])
                longest = max(len(prompt) + len(said) for prompt, said in parts.values())
                count = len(parts)
            groups[-1].append((example, parts))
        return groups

    def _pass(
        self, group: Sequence[tuple[Example, Parts]], total: float, anchor: int | None
    ) -> tuple[float, float]:
        """One forward and backward pass over all sequences of a group, padded to the longest.

        Together because a small pass is mostly overhead: 81 tokens/s for one sequence of 70, 165 for four.
        """
        sequences = [sequence for _, parts in group for sequence in parts.values()]
        if anchor is not None:
            sequences.append(self._anchors[anchor])
        self.metrics.tokens += sum(len(prompt) + len(said) for prompt, said in sequences)
        said = iter(scoring.completions(self.model, sequences))
        losses = []
        fit = drift = 0.0
        for example, parts in group:
            loss, fitted = self._loss(example, {name: next(said) for name in parts})
            losses.append(loss * example.weight / total)
            fit += fitted * example.weight
        if anchor is not None:
            value = next(said).each(objectives.forward_kl, self._anchored(anchor)).mean()
            drift = float(value.detach())
            losses.append(self._settings.weights[Term.ANCHOR] * value)
        torch.autograd.backward(torch.stack(losses).sum())
        return fit, drift

    def _parts(self, example: Example) -> Parts:
        """The sequences that an example's loss needs logits of, by name."""
        weights = self._settings.weights
        if example.chosen is not None:
            parts: Parts = {"chosen": (example.prompt, example.chosen.tokens)}
            start, end = rejected_window(example.chosen.tokens, example.reply.tokens)
            # Where the two part late, the reply's own sequence would be a third of a round's tokens, nearly all of them
            # once more what the two share: the parting itself, in the correction's sequence, has to do.
            if weights[Term.PREFERENCE] > 0.0 and start < self._settings.preference_reach and end > start:
                parts["rejected"] = (example.prompt, example.reply.tokens[:end])
            return parts
        reply = (example.prompt, example.reply.tokens)
        if example.hinted is None or example.kind.approves:
            return {"reply": reply}
        parts = {f"accepted {index}": (example.prompt, said) for index, said in enumerate(example.accepted)}
        if not parts or weights[Term.ON_POLICY] > 0.0:
            parts["reply"] = reply
        return parts

    def _loss(self, example: Example, said: dict[str, Positions]) -> tuple[Tensor, float]:
        """An example's loss, and how well it fits (the loss itself where there is no better measure)."""
        if example.chosen is not None:
            terms, fit = self._correction(example, example.chosen, said)
            return objectives.combined(terms, self._settings.weights), fit
        if example.hinted is None or example.kind.approves:
            terms = self._binary(example, said["reply"])
        else:
            terms = self._distilled(example, said)
        loss = objectives.combined(terms, self._settings.weights)
        return loss, float(loss.detach())

    def _correction(
        self, example: Example, chosen: Target, said: dict[str, Positions]
    ) -> tuple[Terms, float]:
        """Likelihood of the owner's text, and a bounded preference against the reply it replaces."""
        values = said["chosen"].each(objectives.token_logprobs, torch.tensor(chosen.tokens))
        ratios = None
        start, end = rejected_window(chosen.tokens, example.reply.tokens)
        if "rejected" not in said:
            ratios = self._parting(example, chosen, said["chosen"], start)
        else:
            reply = example.reply.tokens[:end]
            rejected = said["rejected"].each(objectives.token_logprobs, torch.tensor(reply))
            stop = min(end, len(chosen.tokens))
            chosen_base = self._reference(example, "chosen", (example.prompt, chosen.tokens))
            rejected_base = self._reference(example, "rejected", (example.prompt, reply))
            ratios = (
                (values[start:stop] - chosen_base[start:stop]).sum(),
                (rejected[start:] - rejected_base[start:]).sum(),
            )
        if example.kind.compares:
            assert ratios is not None
            terms = objectives.preference(ratios, self._settings.beta)
            # As it is, not as little as it counts: beside corrections it must not look like a lesson learned.
            return terms, float(terms[Term.PREFERENCE].detach())
        terms = objectives.correction(values, torch.tensor(chosen.weights), ratios, self._settings.beta)
        return terms, _fit(values.detach(), chosen.weights)

    def _parting(
        self, example: Example, chosen: Target, said: Positions, start: int
    ) -> tuple[Tensor, Tensor] | None:
        """How far the two tokens at which correction and reply part have moved from the base; None where none do."""
        reply = example.reply.tokens
        if self._settings.weights[Term.PREFERENCE] <= 0.0 or not start < min(len(chosen), len(reply)):
            return None
        if chosen.tokens[start] == reply[start]:
            return None
        pair = torch.tensor([chosen.tokens[start], reply[start]])
        key = (example.unit, "parting")
        if key not in self._base_logprobs:
            shared = (example.prompt, chosen.tokens[: start + 1])
            with torch.no_grad(), scoring.as_base(self.model):
                last = scoring.completions(self.model, [shared])[0].at([-1, -1])
                self._base_logprobs[key] = last.each(objectives.token_logprobs, pair)
        moved = said.at([start, start]).each(objectives.token_logprobs, pair) - self._base_logprobs[key]
        return moved[0], moved[1]

    def _binary(self, example: Example, said: Positions) -> Terms:
        """A bare thumb moves the whole reply, within APO-zero's bounds."""
        policy = said.each(objectives.token_logprobs, torch.tensor(example.reply.tokens)).sum()
        reference = self._reference(example, "reply", (example.prompt, example.reply.tokens)).sum()
        return objectives.binary(
            policy.unsqueeze(0), reference.unsqueeze(0), torch.tensor([example.reward]), self._settings.beta
        )

    def _distilled(self, example: Example, said: dict[str, Positions]) -> Terms:
        """A hint is distilled: from the teacher's accepted replies, and from what it thinks of the reply's own."""
        own = None
        if "reply" in said:
            backwards = partial(objectives.reverse_kl_topk, k=self._settings.top_k)
            own = self._apart(example, OWN, said["reply"], backwards, objectives.reverse_kl_bins)
        accepted = [
            self._apart(
                example, index, said[f"accepted {index}"], objectives.forward_kl, objectives.forward_kl_bins
            )
            for index in range(len(example.accepted))
        ]
        return objectives.opd(own, accepted)

    def _apart(self, example: Example, index: int, said: Positions, whole: Measure, bins: Measure) -> Tensor:
        """How far model and teacher are apart at each position of a reply, `OWN` or an accepted one's number.

        A stronger teacher has said before what it thinks, in ``bins``; the base is asked here, for the ``whole``.
        """
        if not example.opinions:
            return said.each(whole, self._hinted(example, index))
        opinion = example.opinions[index + 1]
        return said.each(bins, torch.from_numpy(opinion.tokens), torch.from_numpy(opinion.logprobs))

    def _anchored(self, index: int) -> Positions:
        """The frozen base on an anchor passage, computed once per round."""
        if index not in self._anchor_base:
            with torch.no_grad(), scoring.as_base(self.model):
                self._anchor_base[index] = scoring.completions(self.model, [self._anchors[index]])[0].kept()
        return self._anchor_base[index]

    def _reference(self, example: Example, part: str, sequence: scoring.Sequence2) -> Tensor:
        """Log-probabilities under the frozen base, computed once per round."""
        key = (example.unit, part)
        if key not in self._base_logprobs:
            with torch.no_grad(), scoring.as_base(self.model):
                self._base_logprobs[key] = scoring.completion_logprobs(self.model, [sequence])[0]
        return self._base_logprobs[key]

    def _hinted(self, example: Example, index: int) -> Positions:
        """The frozen base that sees the hint, on a reply. Computed once per round."""
        key = (example.unit, index)
        if key not in self._teacher:
            assert example.hinted is not None
            reply = example.reply.tokens if index == OWN else example.accepted[index]
            with torch.no_grad(), scoring.as_base(self.model):
                self._teacher[key] = scoring.completions(self.model, [(example.hinted, reply)])[0].kept()
        return self._teacher[key]


def _fit(logprobs: Tensor, weights: Sequence[float]) -> float:
    """Mean loss over what the owner wrote, in nats per token: what was merely kept is known already."""
    written = torch.tensor(weights) >= 1.0
    return -float(logprobs[written].mean())


def _longest(group: Sequence[tuple[Example, Parts]]) -> int:
    """Tokens of the longest sequence of a group."""
    return max((len(prompt) + len(said) for _, parts in group for prompt, said in parts.values()), default=0)


def _sequences(group: Sequence[tuple[Example, Parts]]) -> int:
    """How many sequences a group has."""
    return sum(len(parts) for _, parts in group)


def with_adapter(base: Any, settings: TrainSettings) -> Any:
    """The base with a fresh LoRA on all linear layers but the output's; only the LoRA trains."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(settings.seed)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        target_modules=_TARGET_MODULES,
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # PEFT asks transformers for an attribute by its old name.
        warnings.simplefilter("ignore", FutureWarning)
        return get_peft_model(base, config, adapter_name=ADAPTER)
