"""`mynah memory`, `instructions`, `guards` and `items measure`: what Mynah knows and keeps to, seen and changed.

Three groups of one make, because the owner does the same with all three: look, add, change, compare, switch off,
forget. What is added here holds from the next question on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from app.cli import forget
from app.cli.output import emit, json_option, progress, say, short_time, table, text_argument
from app.cli.session import Kind, full_id, service
from app.service import Service
from store.errors import NotFound, UsageError
from store.items import Item
from store.types import ItemKind, ItemState, Scope

_DAY = 86400.0
_NAMES = {ItemKind.MEMORY: "memory", ItemKind.INSTRUCTION: "instruction", ItemKind.GUARD: "guard"}
_GROUPS = {
    ItemKind.MEMORY: ("memory", "What Mynah remembers of you: see, add, change, switch off, forget."),
    ItemKind.INSTRUCTION: ("instructions", "Standing rules for every reply: see, add, change, switch off."),
    ItemKind.GUARD: ("guards", "Checks that every reply goes through: see, add, change, switch off."),
}


def _group(kind: ItemKind) -> click.Group:
    """All that can be done with one kind."""
    name, summary = _GROUPS[kind]
    group = click.Group(name, help=summary)
    one = _NAMES[kind]

    @group.command("list", help=f"List each {one}, the newest version of each; forgotten ones are gone.")
    @json_option
    def list_(as_json: bool) -> None:
        mynah = service()
        found = mynah.items(kind)
        emit([_data(mynah, each) for each in found], as_json, lambda: _rows(found))
        if not found:
            say(f"there is no {one} yet: `mynah {name} add` makes one")

    @group.command(help=f"Show the {one} ID: where it is from, its versions, its effect.")
    @click.argument("item", metavar="ID")
    @json_option
    def show(item: str, as_json: bool) -> None:
        mynah = service()
        found = _found(mynah, kind, item)
        versions = mynah.item_versions(found.id)
        data = {**_data(mynah, found), "versions": [_data(mynah, each) for each in versions]}
        emit(data, as_json, lambda: _whole(mynah, found, versions))

    @group.command(help=f"Show what the {one} ID changed: against the version before it, or against OTHER.")
    @click.argument("item", metavar="ID")
    @click.argument("other", metavar="[OTHER]", required=False)
    @json_option
    def diff(item: str, other: str | None, as_json: bool) -> None:
        mynah = service()
        found = _found(mynah, kind, item).id
        text = mynah.item_diff(found, None if other is None else _found(mynah, kind, other).id)
        emit({"item": found, "diff": text}, as_json, text.splitlines)

    for word, state in (("off", ItemState.OFF), ("on", ItemState.ACTIVE)):
        group.add_command(_switch(kind, word, state))

    @group.command("forget", help=f"Forget the {one} ID in all its versions, in backups and prompts as well.")
    @click.argument("item", metavar="ID")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @click.option("--dry-run", is_flag=True, help="Only say what it would undo.")
    @json_option
    def forget_(item: str, yes: bool, dry_run: bool, as_json: bool) -> None:
        found = _found(service(), kind, item).id
        forget.carry_out(Scope.MEMORY, found, wait=False, dry_run=dry_run, yes=yes, as_json=as_json)

    return group


def _switch(kind: ItemKind, word: str, state: ItemState) -> click.Command:
    @click.command(word, help=f"Switch the {_NAMES[kind]} ID {word}.")
    @click.argument("item", metavar="ID")
    @json_option
    def switch(item: str, as_json: bool) -> None:
        mynah = service()
        changed = mynah.switch_item(_found(mynah, kind, item).id, state)
        emit(_data(mynah, changed), as_json, lambda: [_said(changed)])

    return switch


memory = _group(ItemKind.MEMORY)
instructions = _group(ItemKind.INSTRUCTION)
guards = _group(ItemKind.GUARD)

_topic = click.option(
    "--topic", metavar="WORDS", help="What it is about; it takes the place of what was said of that."
)


@memory.command("add")
@click.argument("text", nargs=-1)
@_topic
@click.option("--days", type=click.FloatRange(min=0.01), help="For how long it holds.")
@click.option("--preference", is_flag=True, help="It holds whatever the question is about.")
@json_option
def add_memory(
    text: tuple[str, ...], topic: str | None, days: float | None, preference: bool, as_json: bool
) -> None:
    """Remember TEXT."""
    body = {"text": text_argument(text, "memory")} | ({"value_type": "preference"} if preference else {})
    _added(ItemKind.MEMORY, body, topic, days, as_json)


@instructions.command("add")
@click.argument("text", nargs=-1)
@_topic
@json_option
def add_instruction(text: tuple[str, ...], topic: str | None, as_json: bool) -> None:
    """Make TEXT a rule for every reply, such as "answer in metric units"."""
    _added(ItemKind.INSTRUCTION, {"text": text_argument(text, "instruction")}, topic, None, as_json)


@guards.command("add")
@click.argument("template")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A parameter; VALUE may be JSON.")
@_topic
@json_option
def add_guard(template: str, given: tuple[str, ...], topic: str | None, as_json: bool) -> None:
    """Hold every reply to TEMPLATE (`mynah guards templates` lists them).

    For example: mynah guards add length --set sentences=2
    """
    body = {"template": template, "parameters": _parameters(given)}
    _added(ItemKind.GUARD, body, topic, None, as_json)


@memory.command("edit")
@click.argument("item", metavar="ID")
@click.argument("text", nargs=-1)
@json_option
def edit_memory(item: str, text: tuple[str, ...], as_json: bool) -> None:
    """Say the memory ID anew as TEXT; what it said before stays as its earlier version."""
    _edited(ItemKind.MEMORY, item, {"text": text_argument(text, "memory")}, as_json)


@instructions.command("edit")
@click.argument("item", metavar="ID")
@click.argument("text", nargs=-1)
@json_option
def edit_instruction(item: str, text: tuple[str, ...], as_json: bool) -> None:
    """Say the instruction ID anew as TEXT; what it said before stays as its earlier version."""
    _edited(ItemKind.INSTRUCTION, item, {"text": text_argument(text, "instruction")}, as_json)


@guards.command("edit")
@click.argument("item", metavar="ID")
@click.option(
    "--set", "given", multiple=True, required=True, metavar="NAME=VALUE", help="A parameter to change."
)
@json_option
def edit_guard(item: str, given: tuple[str, ...], as_json: bool) -> None:
    """Change parameters of the guard ID; what they were stays as its earlier version."""
    found = _found(service(), ItemKind.GUARD, item)
    parameters = {**found.body.get("parameters", {}), **_parameters(given)}
    _edited(ItemKind.GUARD, found.id, {"template": found.body["template"], "parameters": parameters}, as_json)


@guards.command()
@json_option
def templates(as_json: bool) -> None:
    """List what a guard can be."""
    from app.harness.guards import TEMPLATES

    data = [
        {
            "template": each.name,
            "what": each.what,
            "parameters": {name: parameter.takes for name, parameter in each.parameters.items()},
        }
        for each in TEMPLATES.values()
    ]
    rows = [
        (each["template"], each["what"], ", ".join(f"{name}: {takes}" for name, takes in _taken(each)))
        for each in data
    ]
    emit(data, as_json, lambda: table(("template", "a reply is", "parameters"), rows))


@click.group()
def items() -> None:
    """Memories, instructions and guards alike: measure what one of them does."""


@items.command()
@click.argument("item", metavar="ID")
@click.option(
    "--cases", type=click.IntRange(1, 100), default=8, show_default=True, help="How many questions."
)
@json_option
def measure(item: str, cases: int, as_json: bool) -> None:
    """Answer your last questions with the item ID and without it, and keep what that shows.

    What changes nothing on five questions or more is retired; `on` brings it back.
    """
    from app.measuring import measure as measured

    mynah = service()
    found = full_id(mynah, Kind.ITEM, item)
    with progress("measuring") as told:
        done = measured(mynah, found, cases, told)
    emit(
        {**_data(mynah, done.item), "retired": done.retired},
        as_json,
        lambda: [_said(done.item), _effect(done.item)],
    )


def _added(
    kind: ItemKind, body: dict[str, Any], topic: str | None, days: float | None, as_json: bool
) -> None:
    mynah = service()
    made = mynah.add_item(kind, body, topic, None if days is None else days * _DAY)
    emit(_data(mynah, made), as_json, lambda: [_said(made)])


def _edited(kind: ItemKind, typed: str, body: dict[str, Any], as_json: bool) -> None:
    mynah = service()
    made = mynah.edit_item(_found(mynah, kind, typed).id, body)
    emit(_data(mynah, made), as_json, lambda: [_said(made)])


def _found(mynah: Service, kind: ItemKind, typed: str) -> Item:
    found = mynah.item(full_id(mynah, Kind.ITEM, typed))
    if found.kind is not kind:
        raise NotFound(
            f"{found.id} is no {_NAMES[kind]}: see `mynah {_GROUPS[found.kind][0]} show {found.id}`"
        )
    return found


def _parameters(given: tuple[str, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set takes NAME=VALUE, not {each!r}")
        try:
            made[name] = json.loads(value)
        except ValueError:
            made[name] = value
    return made


def _data(mynah: Service, item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "kind": item.kind,
        "topic": item.topic,
        "version": item.version,
        "state": item.state,
        "body": item.body,
        "source": item.source_message,
        "span": item.source_span,
        "confidence": item.confidence,
        "expires": item.expires,
        "created": item.created,
        "decision": item.decision,
        "effect": item.effect,
        "uses": mynah.item_uses(item.id),
    }


def _rows(found: list[Item]) -> list[str]:
    rows = [(each.id, _state(each), each.topic, f"v{each.version}", each.text) for each in found]
    return table(("id", "state", "topic", "version", "what"), rows)


def _whole(mynah: Service, item: Item, versions: list[Item]) -> Iterator[str]:
    yield _said(item)
    if item.source_message is not None:
        yield f"read off message {item.source_message}, confidence {item.confidence:.0%}"
    if item.expires is not None:
        yield f"holds until {short_time(item.expires)}"
    if item.decision is not None:
        yield f"decision {item.decision}"
    yield f"reached {mynah.item_uses(item.id)} replies"
    yield _effect(item)
    for each in versions:
        yield f"  v{each.version} {_state(each):<8} {short_time(each.created)}  {each.id}  {each.text}"


def _said(item: Item) -> str:
    return f"{item.id} {_state(item)}: {item.text}"


def _state(item: Item) -> str:
    return "expired" if item.expired and item.state is ItemState.ACTIVE else item.state.value


def _effect(item: Item) -> str:
    effect = item.effect
    if effect is None:
        return f"effect: not measured (`mynah items measure {item.id}`)"
    low, high = effect.get("interval") or (0.0, 1.0)
    return (
        f"effect: {effect.get('measure', 'better')} {effect['with']:.0%} with it, {effect['without']:.0%} without, on "
        f"{effect['n']} questions; it changed {low:.0%} to {high:.0%} of replies"
    )


def _taken(each: dict[str, Any]) -> list[tuple[str, str]]:
    return list(each["parameters"].items())
