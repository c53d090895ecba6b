"""A plugin for Simon Willison's `llm`: Mynah as one of its models, and feedback as one of its commands.

It talks to the same host over the same endpoint as any program, and only adds what a setting of `llm` could not:
it starts the host where none runs, needs no address and no key, and rates the reply that was given last. `llm`
imports every plugin at each start, so nothing of ours is imported before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click
import llm
from pydantic import Field

if TYPE_CHECKING:
    from app.service import Receipt, Service
    from store.db import Store

_SILENCE_SECONDS = 60.0
_VALUES = {"up": 1, "down": -1, "clear": 0}
_SHOWN = 60


class Chat(llm.Model):
    """Mynah as it serves now, or a version of it by name."""

    can_stream = True

    class Options(llm.Options):
        """What a prompt may set; the rest is as in the chat."""

        temperature: float | None = Field(
            default=None, ge=0, le=2, description="0 is always the same answer."
        )
        top_p: float | None = Field(
            default=None, ge=0, le=1, description="Share of likeliest tokens to draw from."
        )
        max_tokens: int | None = Field(default=None, ge=1, description="Longest reply, in tokens.")
        seed: int | None = Field(default=None, description="The same seed and prompt give the same answer.")
        learn: bool = Field(default=True, description="False: keep this apart, and never learn from it.")

    def __init__(self, model_id: str) -> None:
        self.model_id = model_id

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
        """The reply in pieces, or whole."""
        options = prompt.options
        body = {
            "model": self.model_id,
            "messages": [*_earlier(conversation), *_messages(prompt)],
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: getattr(options, name) for name in ("temperature", "top_p", "max_tokens", "seed")},
        }
        pieces = []
        for event in _events(body, learn=options.learn):
            if "error" in event:
                raise llm.ModelError(event["error"]["message"])
            if event.get("usage"):
                usage = event["usage"]
                response.set_usage(input=usage["prompt_tokens"], output=usage["completion_tokens"])
            if "mynah" in event:
                response.response_json = {"id": event["id"], "model": event["model"], "mynah": event["mynah"]}
            for choice in event["choices"]:
                piece = choice["delta"].get("content")
                if piece:
                    pieces.append(piece)
                    if stream:
                        yield piece
        if not stream:
            yield "".join(pieces)


def _earlier(conversation: Any) -> Iterator[dict[str, str]]:
    for response in [] if conversation is None else conversation.responses:
        yield from _messages(response.prompt)
        yield {"role": "assistant", "content": response.text_or_raise()}


def _messages(prompt: Any) -> Iterator[dict[str, str]]:
    if prompt.system:
        yield {"role": "system", "content": prompt.system}
    yield {"role": "user", "content": prompt.prompt}


def _events(body: dict[str, Any], *, learn: bool) -> Iterator[dict[str, Any]]:
    """The events of one chat request, to a host that is started where none runs."""
    import http.client

    from app.host.client import ensure_host
    from store.errors import MynahError
    from store.home import Home

    try:
        endpoint = ensure_host(Home.default()).endpoint
    except MynahError as error:
        raise llm.ModelError(str(error)) from error
    headers = {
        "Authorization": f"Bearer {endpoint.token}",
        "Content-Type": "application/json",
        "X-Mynah-Learn": "on" if learn else "off",
        "User-Agent": "llm",
    }
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=_SILENCE_SECONDS)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            yield json.loads(answer.read())
            return
        for line in answer:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise llm.ModelError(f"the model host went away ({error}): ask again") from error
    finally:
        connection.close()


@llm.hookimpl
def register_models(register: Any) -> None:
    """`mynah` is what serves now; `mynah@base` is the model without what it has learned."""
    register(Chat("mynah"))
    register(Chat("mynah@base"))


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """`llm mynah rate` and `llm mynah correct`."""
    cli.add_command(_feedback, "mynah")


@click.group()
def _feedback() -> None:
    """Teach Mynah: rate or correct the reply it gave last."""


_message_option = click.option(
    "--message", help="The reply's id (default: the last that a program was given)."
)


@_feedback.command()
@click.argument("rating", type=click.Choice(list(_VALUES)))
@click.option("--note", help="What would have been better; goes with `down`.")
@_message_option
def rate(rating: str, note: str | None, message: str | None) -> None:
    """Rate the last reply up or down; `clear` takes that back."""
    if note is not None and rating != "down":
        raise click.UsageError("--note says what was wrong, so it goes with `down`")
    _teach(message, lambda mynah, reply: mynah.rate(reply, _VALUES[rating], note=note))


@_feedback.command()
@click.argument("text")
@_message_option
def correct(text: str, message: str | None) -> None:
    """Say what the last reply should have been."""
    _teach(message, lambda mynah, reply: mynah.correct(reply, text))


def _teach(typed: str | None, say: Callable[[Service, str], Receipt]) -> None:
    from app.service import Service
    from store import conversations
    from store.errors import MynahError
    from store.home import Home

    try:
        with closing(Service(Home.default())) as mynah:
            reply = _last(mynah.store) if typed is None else mynah.resolve("messages", typed)
            receipt = say(mynah, reply)
            said = " ".join(conversations.get_message(mynah.store, reply).text.split())
    except MynahError as error:
        raise click.ClickException(str(error)) from error
    fate = "nothing to learn from it" if receipt.fate is None else receipt.fate.text
    click.echo(f"{said[:_SHOWN]}{'…' if len(said) > _SHOWN else ''}\n{reply}: {fate}")


def _last(store: Store) -> str:
    """The newest reply to a program."""
    from store import conversations

    for conversation in conversations.list_(store):
        if conversation.source == conversations.PROGRAM and conversation.head is not None:
            return conversation.head
    raise click.ClickException("no program has been given a reply yet: ask something first")
