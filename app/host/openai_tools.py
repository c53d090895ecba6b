"""Tools over a model that only reads and writes text: definitions in, calls out, in the form such models learn.

Definitions are told in the system prompt and calls are written as JSON between `<tool_call>` tags, the form that
Hermes and Qwen models are trained on and that others imitate; so they are kept as text, and a template that has a form
of its own for calls and results gets them in that (app/model/tool_turns.py). Where a client demands a call, a grammar
leaves the model nothing else to write; where it leaves the choice, the model is free until it has begun a call, and
its arguments then follow their schema. What is no call is text.

A call's id names the reply it stands in. A client that sends the call back so tells us which reply that was,
however it has rewritten the arguments since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from app.host.json_grammar import GrammarBuilder
from app.host.requests import FieldError, checked_text, mapping, text

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_END = "}\n" + CLOSE
_NEXT = "\n" + OPEN
_MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ID = re.compile(r"call_(?P<message>m\w+)_\d+")
_FORM = '{"name": <function-name>, "arguments": <args-json-object>}'


class Choice(StrEnum):
    """Whether the model decides, or must call."""

    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True)
class Tool:
    """One function a model may call. ``parameters`` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]

    @property
    def without_schema(self) -> Tool:
        """The same function with any arguments."""
        return replace(self, parameters={"type": "object"})


@dataclass(frozen=True)
class Call:
    """One call. ``arguments`` is JSON text, as clients send and parse it."""

    id: str
    name: str
    arguments: str

    def as_json(self) -> dict[str, Any]:
        """The call as it stands in a message."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True)
class Toolbox:
    """The tools of a request. ``forced``: those of which one must be called, where the client says so."""

    tools: tuple[Tool, ...]
    forced: tuple[Tool, ...] = ()
    several: bool = True

    @property
    def names(self) -> frozenset[str]:
        """What may be called."""
        return frozenset(tool.name for tool in self.tools)

    def instructions(self) -> str:
        """What the model is told of its tools."""
        described = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in self.tools
        ]
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in described)
        return (
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n"
            f"<tools>\n{listed}\n</tools>\n\n"
            "For each function call, return a json object with function name and arguments within "
            f"{OPEN}{CLOSE} XML tags:\n{OPEN}\n{_FORM}\n{CLOSE}"
        )

    def grammar(self) -> str | None:
        """The grammar of a reply that has to be a call, or None where the model may choose.

        Raises:
            FieldError: a schema that cannot be kept to.
        """
        if not self.forced:
            return None
        builder = GrammarBuilder("tools")
        one = _any_call(builder, self.forced)
        return builder.text(f"{builder.literal(OPEN)} {one}{self._further(builder, one)}")

    def grammar_of_a_call(self) -> str:
        """The grammar of what follows once the model has begun a call by itself.

        A schema that a grammar cannot keep to is no reason to refuse a call that nobody demanded: then its arguments
        are any JSON object.
        """
        try:
            builder = GrammarBuilder("tools")
            tools = [tool if _can_be_kept(tool) else tool.without_schema for tool in self.tools]
            one = _any_call(builder, tools)
        except FieldError:
            # All together are more than one grammar may hold.
            builder = GrammarBuilder("tools")
            one = _any_call(builder, [tool.without_schema for tool in self.tools])
        return builder.text(f"{one}{self._further(builder, one)}")

    def _further(self, builder: GrammarBuilder, one: str) -> str:
        """More calls after the first, where several may be made."""
        return f" ({builder.literal(_NEXT)} {one})*" if self.several else ""


def _any_call(builder: GrammarBuilder, tools: Sequence[Tool]) -> str:
    """The rule of a call of one of these, from behind its opening tag to its closing one."""
    calls = []
    for tool in tools:
        arguments = builder.schema(tool.parameters or {"type": "object"})
        head = builder.literal(f'\n{{"name": {json.dumps(tool.name)}, "arguments": ')
        calls.append(f"{head} {arguments} {builder.literal(_END)}")
    return builder.rule("call", " | ".join(calls))


def _can_be_kept(tool: Tool) -> bool:
    try:
        GrammarBuilder("tools").schema(tool.parameters)
    except (FieldError, RecursionError):
        return False
    return True


def toolbox(fields: Mapping[str, Any]) -> Toolbox | None:
    """The tools of a request, or None where there are none to use.

    Raises:
        FieldError: with the place of what cannot be used.
    """
    listed = fields.get("tools")
    if listed is None or listed == []:
        if fields.get("tool_choice") not in (None, "none", "auto"):
            raise FieldError("tool_choice", "tool_choice needs tools")
        return None
    if not isinstance(listed, list) or len(listed) > _MAX_TOOLS:
        raise FieldError("tools", f"tools must be a list of at most {_MAX_TOOLS} functions")
    tools = tuple(_tool(f"tools[{index}]", entry) for index, entry in enumerate(listed))
    if len({tool.name for tool in tools}) < len(tools):
        raise FieldError("tools", "two tools have the same name")
    several = fields.get("parallel_tool_calls")
    if several is not None and not isinstance(several, bool):
        raise FieldError("parallel_tool_calls", "parallel_tool_calls must be true or false")
    forced = _forced(fields.get("tool_choice"), tools)
    return None if forced is None else Toolbox(tools, forced, several is not False)


def _tool(where: str, entry: object) -> Tool:
    if not isinstance(entry, dict) or entry.get("type") != "function":
        raise FieldError(where, f"{where}.type must be function: no other tools are known here")
    function = entry.get("function")
    if not isinstance(function, dict):
        raise FieldError(f"{where}.function", f"{where}.function must be an object")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FieldError(
            f"{where}.function.name",
            f"{where}.function.name must be 1 to 64 letters, digits, dots, dashes or underscores",
        )
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise FieldError(f"{where}.function.parameters", f"{where}.function.parameters must be a JSON schema")
    return Tool(name, text(function, "description") or "", parameters or {"type": "object", "properties": {}})


def _forced(choice: object, tools: tuple[Tool, ...]) -> tuple[Tool, ...] | None:
    """The tools of which one must be called: none of them for ``auto``; None where no tool may be."""
    if choice is None or choice == Choice.AUTO:
        return ()
    if choice == "none":
        return None
    if choice == Choice.REQUIRED:
        return tools
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        named = tuple(tool for tool in tools if tool.name == name)
        if named:
            return named
        raise FieldError("tool_choice", "tool_choice names a function that is not among the tools")
    raise FieldError("tool_choice", "tool_choice must be none, auto, required, or one function by its name")


def calls_of(where: str, entry: object) -> tuple[Call, ...]:
    """The calls in an assistant's message that a client sends back.

    Raises:
        FieldError: something that is no call.
    """
    if entry is None:
        return ()
    if not isinstance(entry, list):
        raise FieldError(where, f"{where} must be a list of calls")
    calls = []
    for index, item in enumerate(entry):
        place = f"{where}[{index}]"
        function = mapping(item).get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise FieldError(place, f"{place} must be a call of a function")
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            raise FieldError(f"{place}.function.arguments", f"{place}.function.arguments must be a string")
        calls.append(Call(str(item.get("id") or ""), function["name"], arguments or "{}"))
    return tuple(calls)


def written(content: str, calls: Sequence[Call]) -> str:
    """A message with calls as the text a model writes."""
    return "\n".join(
        [
            *([content] if content.strip() else []),
            *(checked_text("tool_calls", _written(call)) for call in calls),
        ]
    )


def _written(call: Call) -> str:
    try:
        arguments = json.dumps(json.loads(call.arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return (
        f'{OPEN}\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {arguments}}}\n{CLOSE}'
    )


def call_id(message: str, index: int) -> str:
    """The id of a call in a reply."""
    return f"call_{message}_{index}"


def reply_of(calls: Sequence[Call]) -> str | None:
    """The reply of ours that calls came from, by their ids; None where they say nothing of it."""
    found = {match["message"] for call in calls if (match := _ID.fullmatch(call.id))}
    return found.pop() if len(found) == 1 else None
