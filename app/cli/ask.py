"""`mynah ask`: one question, one reply, written as it comes.

The only imports are click and the host's client: a question to a running host pays for nothing else. Without
`--conversation` every question starts a conversation of its own, so that two scripts never mix.
"""

from __future__ import annotations

from dataclasses import replace

import click

from app.cli.output import finite, json_option, put, put_json, say, say_remembered, text_argument
from app.counting import told_in_short
from app.host.client import TurnRequest, TurnStream, ensure_host, failed, running_host
from app.host.events import Done, Queued, Started, Token
from store.errors import MynahError, UsageError
from store.home import Home


@click.command()
@click.argument("text", nargs=-1)
@click.option("--conversation", "-c", metavar="ID", help="Go on with this conversation (any unique prefix).")
@click.option(
    "--temperature", "-t", type=click.FloatRange(0, 2), callback=finite, help="0 gives the likeliest reply."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Draw the same reply again.")
@click.option("--max-tokens", "-n", type=click.IntRange(min=1), help="The longest reply, in tokens.")
@click.option("--base", is_flag=True, help="Let the model answer as it was made, this once.")
@click.option(
    "--strength",
    type=click.FloatRange(0, 1),
    callback=finite,
    help="How strongly what was learned speaks, this once.",
)
@click.option("--incognito", is_flag=True, help="Keep nothing of this question and its reply.")
@json_option
def ask(
    text: tuple[str, ...],
    conversation: str | None,
    temperature: float | None,
    seed: int | None,
    max_tokens: int | None,
    base: bool,
    strength: float | None,
    incognito: bool,
    as_json: bool,
) -> None:
    """Ask TEXT and print the reply.

    A single - as TEXT reads the question from standard input. Without --conversation, a new one is started.
    """
    if incognito and conversation is not None:
        raise UsageError(
            "--incognito keeps nothing, so it cannot go on with a conversation: leave one of them out"
        )
    if base and strength is not None:
        raise UsageError("--base is strength 0: leave one of them out")
    question = text_argument(text, "question")
    given = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
    sampler = {name: value for name, value in given.items() if value is not None}
    # What comes through a pipe is somebody's text, not something that was typed.
    request = TurnRequest(
        text=question,
        sampler=sampler or None,
        incognito=incognito,
        base=base,
        strength=strength,
        typed=text != ("-",),
    )
    home = Home.default().open()
    if conversation is not None:
        request = replace(request, conversation=_full_id(home, conversation))
    client = running_host(home)
    if client is None:
        say("starting the model …")
        client = ensure_host(home)
    with client.turn(request) as stream:
        done = _follow(stream, as_json)
    if as_json:
        put_json(done.as_json())
    else:
        _how_to_go_on(done)


def _full_id(home: Home, prefix: str) -> str:
    """The conversation that is meant; looked up here, so that a wrong id starts no host."""
    from store import ids
    from store.db import Store

    with Store.open(home) as store:
        return ids.resolve(store, "conversations", prefix)


def _follow(stream: TurnStream, as_json: bool) -> Done:
    """Write the reply as it comes; returns its end.

    Raises:
        MynahError: there was no whole reply.
    """
    wrote = False
    try:
        for event in stream:
            error = failed(event)
            if error is not None:
                raise error
            if isinstance(event, Token) and not as_json:
                put(event.text, newline=False)
                wrote = True
            elif isinstance(event, Queued) and event.ahead:
                say(f"waiting behind {event.ahead} other {'reply' if event.ahead == 1 else 'replies'} …")
            elif isinstance(event, Started) and event.left_out:
                short = told_in_short(event.left_out, event.summarised)
                say(
                    f"(longer than the model's window: {event.left_out} earlier messages were left out{short})"
                )
            elif isinstance(event, Done):
                if not as_json:
                    put("")
                return event
    except MynahError:
        if wrote:
            put("")
        raise
    raise AssertionError("a stream of events ends with Done or Failed, or raises")


def _how_to_go_on(done: Done) -> None:
    for note in done.notes:
        say(f"({note})")
    if done.finish_reason == "length":
        say("(the reply reached its longest length)")
    elif done.finish_reason == "cancelled":
        say("(the reply was stopped before its end)")
    if done.conversation is not None:
        say(f"(go on: mynah ask -c {done.conversation} …   teach: mynah correct {done.message} …)")
    say_remembered(done.remembered)
