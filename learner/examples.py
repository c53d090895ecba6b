"""Learning units to token examples. The renderer that serves also cuts prompt from completion, so masks agree.

A correction says most where it differs from the reply it replaces. Positions of the owner's text that merely
repeat the reply weigh a tenth of those the owner wrote, or a three-hundred-token reply with one line added would
teach that line with three percent of the gradient. The end of the turn always weighs more than a word: when to
stop is style too, and it is one position in fifty. No style is known by name anywhere here.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.model.renderer import Renderer, Turn
from learner import staleness
from learner.likeliest import Likeliest
from store import consent, conversations, siblings
from store.db import Store
from store.errors import ContextOverflow
from store.redaction import Redactor
from store.redaction.training import redacted_turns
from store.types import FinishReason, MessageStatus, Role, UnitKind
from store.units import NO_CONSENT, Unit

COPIED_WEIGHT = 0.1
END_WEIGHT = 4.0
KEPT_TAIL = 24
# Every token of history costs as much as one of the lesson: a long conversation is cut to its end, a long question
# is not.
USUAL_PROMPT_TOKENS = 256
MAX_PROMPT_TOKENS = 512
# A round begins at the bare base, so earlier lessons are gone over again, but what was said last counts for more.
REPLAY_WEIGHT = 0.5
MAX_COMPLETION_TOKENS = 512
# A rejected reply teaches by where it leaves the owner's text; what comes long after adds time, not direction.
REJECTED_WINDOW = 32


@dataclass(frozen=True)
class Target:
    """A reply as tokens with one loss weight for each; weights of 0 are context only."""

    tokens: list[int]
    weights: list[float]

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Example:
    """One unit, ready to train.

    ``reply`` is what the model said, ``chosen`` the owner's own text where there is one, whole in ``chosen_text``;
    where two answers are only compared, the one that was kept. ``hinted`` is the prompt with the hint in it: what the
    teacher sees. ``accepted`` are the teacher's replies that passed the checks, ``opinions`` what a stronger teacher
    thinks of the positions of the reply and of each of these. ``asked`` counts the owner's messages in the prompt,
    ``turns`` is all that was said before the reply. All text is redacted.
    """

    unit: str
    kind: UnitKind
    reward: float
    weight: float
    question: str
    reply_text: str
    hint: str | None
    prompt: list[int]
    reply: Target
    chosen: Target | None
    hinted: list[int] | None
    accepted: tuple[list[int], ...] = ()
    chosen_text: str | None = None
    asked: int = 1
    turns: tuple[Turn, ...] = ()
    opinions: tuple[Likeliest, ...] = field(default=(), compare=False)

    def taught_by(self, replies: Sequence[list[int]]) -> Example:
        """The same example with the teacher's accepted replies."""
        return replace(self, accepted=tuple(replies))

    def replayed(self) -> Example:
        """The same example as one of an earlier round."""
        return replace(self, weight=self.weight * REPLAY_WEIGHT)


@dataclass(frozen=True)
class Refusal:
    """A unit that cannot be made into an example, and why."""

    unit: Unit
    reason: str


def build(store: Store, renderer: Renderer, unit: Unit, redactor: Redactor) -> Example | Refusal:
    """The example of one unit, or why there is none: the owner may have turned a dial since it was rated."""
    if not consent.may_train(store, unit.conversation):
        return Refusal(unit, NO_CONSENT)
    reply = conversations.get_message(store, unit.message)
    kept = siblings.kept_over(store, reply.id) if unit.kind.compares else None
    if unit.kind.compares and kept is None:
        return Refusal(unit, siblings.UNCLEAR)
    text = redacted_turns(store, unit if kept is None else replace(unit, target=kept.text), redactor)
    turns = [Turn(turn.role, turn.text) for turn in text.turns]
    asked = sum(turn.role is Role.USER for turn in turns)
    if not asked:
        return Refusal(unit, "there is no question before the reply")
    try:
        prompt = _prompt(renderer, turns)
        hinted = _prompt(renderer, with_hint(turns, text.hint)) if text.hint else None
    except ContextOverflow:
        return Refusal(unit, f"the question is longer than {MAX_PROMPT_TOKENS} tokens")
    said = _reply_tokens(renderer, reply, text.reply)
    chosen = None
    if unit.kind is UnitKind.CORRECTION:
        if not text.target:
            return Refusal(unit, "the correction is empty")
        if text.target.strip() == text.reply.strip():
            return Refusal(unit, "it differs from the reply only in personal data, which is not learned")
        tokens = renderer.completion(text.target)
        if len(tokens) > MAX_COMPLETION_TOKENS:
            return Refusal(unit, f"the correction is longer than {MAX_COMPLETION_TOKENS} tokens")
        chosen = correction_target(tokens, said)
    elif not said:
        return Refusal(unit, "the reply is empty")
    elif kept is not None:
        tokens = _reply_tokens(renderer, kept, text.target or "")
        chosen = Target(tokens[:MAX_COMPLETION_TOKENS], [1.0] * min(len(tokens), MAX_COMPLETION_TOKENS))
        if not _part(chosen.tokens, said):
            return Refusal(unit, "the two answers differ only in what is not learned")
    made = Example(
        unit=unit.id,
        kind=unit.kind,
        reward=unit.reward,
        weight=unit.weight,
        question=turns[-1].content,
        reply_text=text.reply,
        hint=text.hint,
        prompt=prompt,
        reply=Target(said[:MAX_COMPLETION_TOKENS], [1.0] * min(len(said), MAX_COMPLETION_TOKENS)),
        chosen=chosen,
        hinted=hinted,
        chosen_text=None if kept is not None else text.target,
        asked=asked,
        turns=tuple(turns),
    )
    left = staleness.aged(made, staleness.of(store, reply))
    return left if isinstance(left, Example) else Refusal(unit, left)


def with_hint(turns: Sequence[Turn], hint: str) -> list[Turn]:
    """The conversation with a hint below its last user message: what the hindsight teacher is asked."""
    last = max(index for index, turn in enumerate(turns) if turn.role is Role.USER)
    hinted = list(turns)
    hinted[last] = Turn(Role.USER, f"{turns[last].content}\n\n{hint}")
    return hinted


def correction_weights(chosen: Sequence[int], reply: Sequence[int]) -> list[float]:
    """One loss weight per token of a correction: what the owner wrote in full, what the owner kept a tenth.

    The first kept token after a change counts as changed: it says where the change ends. The end of the turn weighs
    most where the owner's change reaches it.
    """
    weights = [COPIED_WEIGHT] * len(chosen)
    matcher = difflib.SequenceMatcher(None, reply, chosen, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag != "equal":
            for index in range(start, min(end + 1, len(chosen))):
                weights[index] = 1.0
    if weights[-1] >= 1.0:
        weights[-1] = END_WEIGHT
    return weights


def correction_target(chosen: Sequence[int], reply: Sequence[int]) -> Target:
    """The owner's text with its weights, without a long kept end.

    Three hundred tokens of what the model said itself teach nothing and cost most of the time. What stands before
    a change stays, because the change depends on it.
    """
    weights = correction_weights(chosen, reply)
    last = max(index for index, weight in enumerate(weights) if weight >= 1.0 or index == 0)
    end = min(len(chosen), last + 1 + KEPT_TAIL)
    return Target(list(chosen[:end]), weights[:end])


def _part(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two replies differ at a place that both have."""
    return any(first != second for first, second in zip(one, other, strict=False))


def rejected_window(chosen: Sequence[int], reply: Sequence[int]) -> tuple[int, int]:
    """Where the reply leaves the correction: (first position that differs, end of the window)."""
    start = 0
    for one, other in zip(chosen, reply, strict=False):
        if one != other:
            break
        start += 1
    start = min(start, max(len(reply) - 1, 0))
    return start, min(start + REJECTED_WINDOW, len(reply))


def _prompt(renderer: Renderer, turns: Sequence[Turn]) -> list[int]:
    try:
        return renderer.fit(turns, USUAL_PROMPT_TOKENS, 0).tokens
    except ContextOverflow:
        return renderer.fit(turns, MAX_PROMPT_TOKENS, 0).tokens


def _reply_tokens(renderer: Renderer, reply: conversations.Message, text: str) -> list[int]:
    """The reply's tokens; the end of the turn only where the model itself ended it."""
    tokens = renderer.completion(text)
    if not text.strip():
        return []
    ended = reply.status is MessageStatus.COMPLETE and reply.finish_reason is not FinishReason.LENGTH
    return tokens if ended else tokens[: -len(renderer.completion(""))]
