"""A chat request of the OpenAI interface, checked: what is wanted, in our own terms.

What would change the meaning of a request and cannot be honoured is refused, with the name of the field; what is
harmless is ignored; null is absent. A transcript is kept as it was sent, and shown to the model in another form
(tools described in the system prompt), so both are made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.host import openai_tools as tools
from app.host.json_grammar import response_grammar
from app.host.requests import FieldError, Limits, checked_text, flag, limits, mapping, number, text
from app.model.renderer import Turn
from store.types import Role

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
}
MAX_STOPS = 16
MAX_LIKELIEST = 20
# Each changes what a reply means, and none is supported: the value that asks for nothing passes.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "logit_bias": ({},),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
}


@dataclass(frozen=True)
class Transcript:
    """What a program sends. ``ours``: which reply of ours a turn is, by its place, where its calls say so."""

    turns: Sequence[Turn]
    ours: Mapping[int, str]


@dataclass(frozen=True)
class Call:
    """One chat request. ``model`` None takes what is served; ``client`` tells callers apart for fairness.

    ``likeliest``: how many alternatives each token's log-probability comes with, None for no log-probabilities.
    ``grammar``: what the reply has to follow, where JSON or a call is demanded, and a call once it has begun: from the
    text ``grammar_after`` on. ``stored`` is False where the
    caller says ``"store": false``: then nothing of it is ever written.
    """

    model: str | None
    transcript: Transcript
    limits: Limits
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    client: str | None
    toolbox: tools.Toolbox | None
    likeliest: int | None
    grammar: str | None
    stored: bool = True
    grammar_after: str | None = None

    def for_model(self, system_prompt: str) -> list[Turn]:
        """The conversation as the model reads it; ``system_prompt`` is for conversations without one."""
        turns = list(self.transcript.turns)
        if self.toolbox is None:
            return turns
        if turns[0].role is Role.SYSTEM:
            system_prompt, turns = turns[0].content, turns[1:]
        told = (
            f"{system_prompt}\n\n{self.toolbox.instructions()}"
            if system_prompt
            else self.toolbox.instructions()
        )
        return [Turn(Role.SYSTEM, told), *turns]


def call_of(fields: Mapping[str, Any]) -> Call:
    """A chat request, checked.

    Raises:
        FieldError: with the name of the field that cannot be used.
    """
    for name, neutral in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and value not in neutral:
            raise FieldError(name, f"{name} is not supported here: leave it out")
    options = fields.get("stream_options")
    longest = number(fields, "max_completion_tokens", number(fields, "max_tokens", None))
    toolbox = tools.toolbox(fields)
    grammar, after = _grammar(fields, toolbox)
    return Call(
        model=text(fields, "model"),
        transcript=transcript(fields.get("messages")),
        limits=limits({**fields, "max_tokens": longest}),
        stops=_stops(fields.get("stop")),
        stream=flag(fields, "stream"),
        include_usage=options is not None and flag(mapping(options), "include_usage"),
        client=text(fields, "user"),
        toolbox=toolbox,
        likeliest=_likeliest(fields),
        grammar=grammar,
        grammar_after=after,
        stored=fields.get("store") is None or flag(fields, "store"),
    )


def _grammar(fields: Mapping[str, Any], toolbox: tools.Toolbox | None) -> tuple[str | None, str | None]:
    """The grammar, and the text from which on it holds where it does not from the start."""
    try:
        form = response_grammar(fields)
        call = None if toolbox is None else toolbox.grammar()
    except RecursionError:
        raise FieldError("response_format", "the schema is nested too deep") from None
    if toolbox is not None:
        checked_text("tools", toolbox.instructions())
        if form is not None and call is None:
            raise FieldError(
                "response_format",
                "response_format and tools that the model may choose cannot both be kept to",
            )
    if toolbox is not None and call is None:
        return toolbox.grammar_of_a_call(), tools.OPEN
    return (form if call is None else call), None


def transcript(messages: object) -> Transcript:
    """The messages of a request: one system turn at most, at the front, where templates accept it.

    Raises:
        FieldError: no list of messages, or none at its end that can be answered.
    """
    if not isinstance(messages, list) or not messages:
        raise FieldError("messages", "messages must be a list with at least one message")
    system: list[str] = []
    turns: list[Turn] = []
    ours: dict[int, str] = {}
    for index, entry in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(entry, dict):
            raise FieldError(where, f"{where} must be an object")
        role = _ROLES.get(str(entry.get("role")))
        if role is None:
            raise FieldError(f"{where}.role", f"{where}.role must be one of {', '.join(_ROLES)}")
        content, calls = _message(where, role, entry)
        if role is Role.SYSTEM:
            system.append(content)
            continue
        reply = tools.reply_of(calls)
        if reply is not None:
            ours[len(turns)] = reply
        turns.append(Turn(role, tools.written(content, calls) if calls else content))
    if not turns or turns[-1].role not in (Role.USER, Role.TOOL):
        raise FieldError("messages", "the last message must be the user's, or what a tool found")
    if not any(turn.role is Role.USER for turn in turns):
        raise FieldError("messages", "no message is the user's: there is nothing to answer")
    if system:
        turns.insert(0, Turn(Role.SYSTEM, "\n\n".join(system)))
        ours = {place + 1: reply for place, reply in ours.items()}
    return Transcript(turns, ours)


def _message(where: str, role: Role, entry: Mapping[str, Any]) -> tuple[str, Sequence[tools.Call]]:
    given = entry.get("content")
    if given is None and role in (Role.USER, Role.TOOL):
        raise FieldError(f"{where}.content", f"{where}.content is missing: there is nothing to answer")
    calls = tools.calls_of(f"{where}.tool_calls", entry.get("tool_calls")) if role is Role.ASSISTANT else ()
    return _content(f"{where}.content", given), calls


def _content(where: str, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return checked_text(where, content)
    if not isinstance(content, list):
        raise FieldError(where, f"{where} must be a string or a list of parts")
    pieces = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        said = part.get(kind) if isinstance(part, dict) and kind in ("text", "refusal") else None
        if not isinstance(said, str):
            raise FieldError(where, f"{where} may hold text parts only: this model reads no images or sounds")
        pieces.append(checked_text(where, said))
    return "".join(pieces)


def _stops(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    found = [stop] if isinstance(stop, str) else stop
    if (
        not isinstance(found, list)
        or not all(isinstance(each, str) for each in found)
        or len(found) > MAX_STOPS
    ):
        raise FieldError("stop", f"stop must be a string, or a list of at most {MAX_STOPS} strings")
    return tuple(each for each in found if each)


def _likeliest(fields: Mapping[str, Any]) -> int | None:
    wanted = flag(fields, "logprobs")
    count = number(fields, "top_logprobs", None)
    if count is None or (count == 0 and not wanted):
        return 0 if wanted else None
    if not wanted:
        raise FieldError("top_logprobs", "top_logprobs needs logprobs")
    if count != int(count) or not 0 <= count <= MAX_LIKELIEST:
        raise FieldError("top_logprobs", f"top_logprobs must be an integer from 0 to {MAX_LIKELIEST}")
    return int(count)
