"""`mynah adapters`: what was learned, from what, how it was tested; and choosing, taking back, keeping it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from app.cli.compare import compare
from app.cli.learn import gate_lines
from app.cli.output import emit, json_option, progress, say, short_time, table
from app.cli.session import Kind, full_id, service
from app.cli.strength import strength
from app.service import AdapterDetail, Taught
from store.adapters import Adapter, Serving
from store.errors import UsageError

BASE = "base"


@click.group()
def adapters() -> None:
    """What was learned: list, read, choose, take back, keep.

    An ID is the beginning of an adapter's id, or its version as in v3.
    """


adapters.add_command(compare)
adapters.add_command(strength)


@adapters.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the adapters of the model in use, newest first."""
    mynah = service()
    found = mynah.adapters()
    live = _live_id(mynah.serving())
    pinned = mynah.pinned()
    emit(
        [_row(adapter, live) for adapter in found],
        as_json,
        lambda: table(
            ("version", "id", "state", "made", "learned", "gate"),
            [
                (
                    f"v{adapter.version}",
                    adapter.id,
                    f"{adapter.state}{', pinned' if adapter.id == pinned else ''}",
                    short_time(adapter.created),
                    len(adapter.units),
                    adapter.reason
                    or ("passed" if adapter.gate.get("passed") else adapter.gate.get("summary")),
                )
                for adapter in found
            ],
        ),
    )
    if not found:
        say("nothing has been learned yet: the base model answers")


@adapters.command()
@click.argument("adapter", metavar="ID")
@json_option
def show(adapter: str, as_json: bool) -> None:
    """Show what the adapter ID (or v3) learned from, and how it did at the gate."""
    mynah = service()
    detail = mynah.adapter(full_id(mynah, Kind.ADAPTER, adapter))
    data = {
        **_row(detail.adapter, detail.adapter.id if detail.serving else None),
        "base": detail.adapter.base_hash,
        "run": detail.adapter.run,
        "reason": detail.adapter.reason,
        "gate": detail.adapter.gate,
        "manifest": detail.adapter.manifest,
        "taught": [_taught(taught) for taught in detail.taught],
    }
    emit(data, as_json, lambda: _readable(detail))


@adapters.command()
@click.argument("adapter", metavar="ID")
@click.option(
    "--scale", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="How strongly it acts."
)
@json_option
def use(adapter: str, scale: float, as_json: bool) -> None:
    """Let the adapter ID (or v3) answer from the next turn on; `base` is the model as it came."""
    mynah = service()
    chosen = None if adapter == BASE else full_id(mynah, Kind.ADAPTER, adapter)
    serving = mynah.use(chosen, scale)
    emit(_serving(serving), as_json, lambda: [_now(serving)])


@adapters.command()
@json_option
def rollback(as_json: bool) -> None:
    """Take the live adapter back: what served before it answers from the next turn on."""
    taken, serving = service().rollback()
    data = {"rolled_back": taken.id, **_serving(serving)}
    emit(data, as_json, lambda: [f"took back v{taken.version} ({taken.id}); {_now(serving)}"])


@adapters.command()
@click.argument("adapter", metavar="[ID]", required=False)
@click.option("--off", is_flag=True, help="Let new adapters go live again.")
@json_option
def pin(adapter: str | None, off: bool, as_json: bool) -> None:
    """Keep the adapter ID (or the one that is live): new ones are made and tested, but do not go live."""
    mynah = service()
    if off and adapter is not None:
        raise UsageError("--off needs no adapter: leave one of them out")
    chosen = None if off else _to_pin(adapter, mynah.serving()) or full_id(mynah, Kind.ADAPTER, str(adapter))
    mynah.pin(chosen)
    said = (
        "new adapters go live again" if chosen is None else f"{chosen} stays until `mynah adapters pin --off`"
    )
    emit({"pinned": chosen}, as_json, lambda: [said])


def _to_pin(adapter: str | None, serving: Serving) -> str | None:
    if adapter is not None:
        return None
    if serving.adapter is None:
        raise UsageError(
            "the base model serves, and only an adapter can be pinned: name one, or pause learning"
        )
    return serving.adapter.id


@adapters.command()
@click.argument("adapter", metavar="ID")
@click.option("--out", type=click.Path(path_type=Path), help="The new directory [default: mynah-adapter-ID].")
@click.option(
    "--merged",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the model with the adapter in it as one GGUF file instead.",
)
@json_option
def export(adapter: str, out: Path | None, merged: Path | None, as_json: bool) -> None:
    """Copy the files of the adapter ID (PEFT and GGUF forms, manifest) to a new directory."""
    mynah = service()
    found = full_id(mynah, Kind.ADAPTER, adapter)
    if merged is not None:
        from app.merging import export_merged

        if out is not None:
            raise UsageError(
                "--out is for the adapter's files, --merged for one whole model: take one of them"
            )
        with progress("merging") as told:
            made = export_merged(mynah, found, merged, told)
    else:
        made = mynah.export_adapter(found, out or Path(f"mynah-adapter-{found}"))
    emit({"adapter": found, "path": str(made.absolute())}, as_json, lambda: [f"wrote {made}"])


@adapters.command()
@click.argument("adapter", metavar="ID")
@json_option
def delete(adapter: str, as_json: bool) -> None:
    """Delete the files of the adapter ID, which must not be live."""
    mynah = service()
    found = full_id(mynah, Kind.ADAPTER, adapter)
    mynah.delete_adapter(found)
    emit({"deleted": found}, as_json, lambda: [f"deleted {found}"])


def _live_id(serving: Serving) -> str | None:
    return None if serving.adapter is None else serving.adapter.id


def _row(adapter: Adapter, live: str | None) -> dict[str, Any]:
    return {
        "id": adapter.id,
        "version": adapter.version,
        "state": adapter.state,
        "created": adapter.created,
        "parent": adapter.parent,
        "units": adapter.units,
        "active": adapter.id == live,
    }


def _serving(serving: Serving) -> dict[str, Any]:
    return {"adapter": _live_id(serving), "scale": serving.scale}


def _now(serving: Serving) -> str:
    if serving.adapter is None:
        return "the base model answers now"
    scale = "" if serving.scale == 1.0 else f" at scale {serving.scale:g}"
    return f"v{serving.adapter.version} ({serving.adapter.id}) answers now{scale}"


def _taught(taught: Taught) -> dict[str, Any]:
    unit = taught.unit
    return {
        "unit": unit.id,
        "use": taught.use,
        "kind": unit.kind,
        "message": unit.message,
        "question": taught.question,
        "reply": taught.reply,
        "target": unit.target,
        "hint": unit.hint,
    }


def _readable(detail: AdapterDetail) -> Iterator[str]:
    adapter = detail.adapter
    live = ", live" if detail.serving else ""
    yield f"v{adapter.version}  {adapter.id}  {adapter.state}{live}, made {short_time(adapter.created)}"
    if adapter.parent is not None:
        yield f"after {adapter.parent}"
    if adapter.reason is not None:
        yield f"reason: {adapter.reason}"
    if adapter.gate:
        yield "gate:"
        yield from (f"  {line}" for line in gate_lines(adapter.gate))
    yield "learned from:" if detail.taught else "learned from nothing that is still here"
    for taught in detail.taught:
        unit = taught.unit
        yield f"  {unit.id}  {unit.kind}, {taught.use}"
        yield f"    asked:   {_short(taught.question)}"
        yield f"    replied: {_short(taught.reply)}"
        if unit.target is not None:
            yield f"    better:  {_short(unit.target)}"
        if unit.hint is not None:
            yield f"    hint:    {_short(unit.hint)}"


def _short(text: str, width: int = 88) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
