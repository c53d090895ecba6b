"""`mynah adapters compare`: the same question to two versions, as the chat's before/after page asks it."""

from __future__ import annotations

import click

from app.cli.output import emit, json_option, say, text_argument
from app.cli.session import Kind, full_id, service
from app.host.client import TurnRequest, failed
from app.host.events import Done
from app.service import Service

BASE = "base"
LONGEST = 300


@click.command()
@click.argument("adapter", metavar="ID")
@click.argument("text", nargs=-1)
@click.option("--against", default=BASE, show_default=True, metavar="ID", help="What it is compared with.")
@json_option
def compare(adapter: str, text: tuple[str, ...], against: str, as_json: bool) -> None:
    """Ask TEXT of the adapter ID (or v3) and of another version, `base` by default.

    Both replies are the likeliest ones, and nothing of them is kept or learned from. A single - as TEXT reads the
    question from standard input.
    """
    question = text_argument(text, "question")
    mynah = service()
    names = {
        name: None if name == BASE else full_id(mynah, Kind.ADAPTER, name) for name in (against, adapter)
    }
    replies = []
    for name, chosen in names.items():
        say(f"asking {name} …")
        replies.append({"version": name, "adapter": chosen, "text": _ask(mynah, question, chosen)})
    emit(
        {"question": question, "replies": replies},
        as_json,
        lambda: [line for each in replies for line in (f"{each['version']}:", str(each["text"]), "")][:-1],
    )


def _ask(mynah: Service, question: str, adapter: str | None) -> str:
    request = TurnRequest(
        text=question,
        incognito=True,
        base=adapter is None,
        adapter=adapter,
        sampler={"temperature": 0.0, "max_tokens": LONGEST},
    )
    for event in mynah.chat(request):
        error = failed(event)
        if error is not None:
            raise error
        if isinstance(event, Done):
            return event.text
    raise AssertionError("a stream of events ends with Done or Failed, or raises")
