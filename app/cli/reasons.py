"""One decision told to its owner: what was counted, what was left out, what else was possible, what came of it.

Everything here stands in the record or follows from it. The names of the record's fields are for programs (`--json`);
a person reads sentences, because a decision that only its author can read was not explained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from app.cli.output import short_time
from store import deciding
from store.causes import Signature
from store.changes import APPLIED, DECLINED, OUTCOME, UNDONE, By, Stage
from store.control import CONTROL, ROUND, RULES, Action, Verdict
from store.decisions import WATCH, Decision
from store.evidence import wilson
from store.selfview import Told
from store.types import AdapterState, ItemState

FOLLOWS = (APPLIED, DECLINED, OUTCOME, UNDONE)
"""Records that belong to a decision and are told with it."""

_AGAIN = {
    True: "made again from its record, it comes out the same",
    False: "made again from its record, it does NOT come out the same",
    None: "it cannot be made again: part of its inputs was forgotten",
}
_VERDICTS = {
    Verdict.HELPED: "it helped",
    Verdict.NOT_HELPED: "it did not help",
    Verdict.WORSE: "it made things worse",
}
_BY = {By.RULE: "by itself", By.OWNER: "by you"}


def lines(told: Told) -> Iterator[str]:
    """All that `mynah why` prints."""
    record = told.decision
    yield f"decision   {record.id}, {short_time(record.created)}"
    if record.kind in FOLLOWS:
        yield followed(record)
        yield f"belongs to {record.inputs['decision']}: `mynah why {record.inputs['decision']}` tells all of it"
    else:
        yield from _made(told)
    if told.fault is not None:
        yield f"FAULT      record {told.fault} of the log was changed after it was written"


def _made(told: Told) -> Iterator[str]:
    record = told.decision
    yield f"about      {about(record, told.version)}"
    yield f"choice     {_choice(told)}"
    if reason := record.choice.get("why") or record.choice.get("reason"):
        yield f"because    {reason}"
    yield from _counted(record)
    if names := record.inputs.get("excluded"):
        yield f"excluded   {excluded(names)}: these say nothing about me"
    yield from _rehearsed(record)
    for candidate in record.choice.get("candidates", []):
        yield _candidate(candidate, record.inputs["world"]["record"])
    for reason, number in Counter(record.choice.get("held", {}).values()).items():
        yield f"left out   {_many(number, 'lesson')}: {reason}"
    if told.item is not None:
        yield f"item       {told.item.kind} {told.item.id} v{told.item.version}, {told.item.state}: {told.item.text}"
    if told.gate is not None:
        yield f"gate       {told.gate}"
    yield from (followed(each) for each in told.following)
    if record.kind in (CONTROL, ROUND, WATCH):
        yield f"undo       {_rollback(told)}"
    if record.kind in (CONTROL, ROUND):
        yield f"rules      {record.inputs['rules']}; {_remade(told)}"


def about(record: Decision, version: int | None = None) -> str:
    """What a decision is about, in words."""
    if record.kind == ROUND:
        return "learning"
    if signature := record.inputs.get("signature"):
        return deciding.describe(Signature.parse(signature))
    if adapter := record.inputs.get("adapter"):
        return f"adapter {adapter}" if version is None else f"v{version} (adapter {adapter})"
    return str(record.inputs.get("decision") or record.kind)


def action(choice: Mapping[str, Any]) -> str:
    """What was done, in a word or two."""
    words = {
        Action.PROPOSE: f"add {_a(str(choice.get('knob')))}",
        Action.TRAIN: "learn",
        Action.ROLLBACK: "take back",
        Action.GIVE_UP: "cannot be fixed",
        Action.NOTHING: "nothing for now",
    }
    if "action" not in choice:
        # A request to forget: its record says what answers since then.
        return "forget"
    told = str(choice["action"])
    return words[Action(told)] if told in set(Action) else told.replace("_", " ")


def followed(record: Decision) -> str:
    """One record that belongs to a decision, in a line."""
    by = _BY[By(record.choice["by"])] if record.choice.get("by") else ""
    when = short_time(record.created)
    if record.kind == APPLIED:
        return f"applied    {_applied(record.inputs)}, {by}, {when}"
    if record.kind == OUTCOME:
        before, after = (rate(record.inputs[each]) for each in ("before", "after"))
        what = _VERDICTS[Verdict(record.choice["verdict"])]
        signature = deciding.describe(Signature.parse(record.inputs["signature"]))
        return f"outcome    {what} against {signature}: before {before}, with it {after}; {when}"
    if record.kind == DECLINED:
        return f"declined   {by}, {when}"
    reason = record.choice.get("reason")
    return f"undone     {by}, {when}" + (f": {reason}" if reason else "")


def _applied(told: Mapping[str, Any]) -> str:
    if not told.get("item"):
        return f"run {told.get('run')} asked for"
    # What was forgotten has no hash any more, nor has a record of an older version one.
    known = str(told.get("artifact") or "")
    return f"{told['item']} holds" + (f" (SHA-256 {known[:12]})" if len(known) == 64 else "")


def rate(count: Mapping[str, Any]) -> str:
    """Failures among replies with the interval of the rate."""
    low, high = count["low"], count["high"]
    return f"{count['failures']:.0f} of {count['steps']:.0f} failed ({low:.0%} to {high:.0%})"


def excluded(names: Mapping[str, int]) -> str:
    """What does not count, by why."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in names.items())


def _choice(told: Told) -> str:
    choice = told.decision.choice
    said = action(choice)
    if choice.get("action") == Action.ROLLBACK:
        said = f"take back the {choice['knob']} of decision {choice['target']}"
    elif choice.get("action") == Action.TRAIN:
        said = "a learning run" if told.decision.kind == ROUND else "leave it to the next learning run"
    if not choice.get("ask"):
        return said
    waits = told.change is not None and told.change.stage("") is Stage.WAITING
    here = told.decision.id
    return f"{said}, if you agree" + (f" (`mynah approve {here}`, `mynah decline {here}`)" if waits else "")


def _counted(record: Decision) -> Iterator[str]:
    inputs = record.inputs
    if inputs.get("asked"):
        yield "counted    nothing: one request in so many words is enough"
    elif now := inputs.get("now"):
        where = _many(now["conversations"], "conversation")
        yield (
            f"counted    {now['failures']} of {now['steps']} replies failed, in {where}; "
            f"the true rate is {now['low']:.1%} to {now['high']:.1%} (95 %)"
        )
    if flight := inputs.get("flight"):
        yield f"before it  {rate(flight['before'])}"
        yield f"with it    {rate(flight['after'])}"
    if record.kind == WATCH:
        yield from _tested(inputs["test"])
    if record.kind == ROUND:
        yield from _lessons(record)


def _rehearsed(record: Decision) -> Iterator[str]:
    """What was answered again before anything was changed; decisions of older rules know nothing of it."""
    for knob, count in record.inputs.get("rehearsed", {}).items():
        if count["steps"]:
            kept = count["steps"] - count["failures"]
            yield f"rehearsed  {_a(knob)} on {_many(count['steps'], 'recorded question')}: right in {kept}"


def _tested(test: Mapping[str, Any]) -> Iterator[str]:
    low, high = wilson(test["objections"], test["replies"])
    yield (
        f"counted    you objected to {test['objections']} of its {test['replies']} replies ({low:.0%} to {high:.0%}); "
        f"usual is {test['usual']:.0%}"
    )
    yield f"test       a rise to {test['risen']:.0%} counts; sequential, wrong at most once in a thousand times"


def _lessons(record: Decision) -> Iterator[str]:
    for group in record.inputs["groups"]:
        left = [unit for unit in group["units"] if unit not in record.choice["held"]]
        if left:
            name = group["signature"]
            what = "nothing went wrong that has a name" if name is None else _described(name)
            yield f"lessons    {len(left)}: {what}"


def _candidate(candidate: Mapping[str, Any], helped: Mapping[str, Any]) -> str:
    good, tried = helped.get(candidate["knob"], (0, 0))
    so_far = f"{good} of {tried} so far did" if tried else "none was tried yet"
    told = (
        f"cost {candidate['cost']}, risk {candidate['risk']}; "
        f"expected to help {candidate['confidence']:.0%} of the time, {so_far}"
    )
    if candidate["why_not"] is None:
        return f"chosen     {candidate['knob']} ({told})"
    return f"not chosen {candidate['knob']}, since {candidate['why_not']} ({told})"


def _rollback(told: Told) -> str:
    record, change = told.decision, told.change
    command = f"`mynah undo {record.id}`"
    if any(each.kind in (UNDONE, DECLINED) for each in told.following):
        return "that was done already"
    if record.kind == WATCH or record.choice.get("action") == Action.ROLLBACK:
        if record.kind == WATCH:
            return f"{command} lets v{told.version} answer again"
        return f"{command} lets what {record.choice['target']} had changed hold again"
    if change is None:
        return "nothing was changed, so there is nothing to undo"
    if change.stage("") is Stage.WAITING:
        return "nothing was changed yet"
    if change.knob.is_context:
        if told.item is None or told.item.state is not ItemState.ACTIVE:
            return "it does not hold any more"
        return f"{command} " + (
            f"puts {change.previous} back" if change.previous else f"switches {told.item.id} off"
        )
    if told.adapter_state is not AdapterState.ACTIVE:
        return "no version of it answers" + (" any more" if change.applied else "")
    return f"{command} takes v{told.version} back"


def _remade(told: Told) -> str:
    if told.decision.inputs["rules"] != RULES:
        return f"the rules are {RULES} by now"
    return _AGAIN[told.remade]


def _described(signature: str) -> str:
    return deciding.describe(Signature.parse(signature))


def _a(word: str) -> str:
    return f"an {word}" if word[:1] in "aeiou" else f"a {word}"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
