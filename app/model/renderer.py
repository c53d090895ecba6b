"""One renderer per chat template: the prompt, the stops and the positions that carry loss have one owner.

Serving and training must see the same tokens, and no text may forge a turn. A template is therefore rendered
with unguessable marks in place of the contents; what lies between the marks is the template's own text and
is tokenised with control tokens, the contents are tokenised without. A user's literal `<|im_end|>` stays
harmless pieces of text. It costs nothing in likeness: for SmolLM2 and Qwen2.5 the tokens equal those of the
template rendered whole, because every content there stands between a newline and a control token; they
differ only where a content begins with white space, which would merge with that newline. What a template
does to a content itself (trimming it, cutting a `</think>` block) does not happen.

Calls of functions and what they found go through a template that has a form for them as what they are, with marks for
the names and arguments as well, also where it writes them as JSON; any other is told them as text (tool_turns.py).

The reply's tokens follow the prompt's, and the next prompt follows both, token for token: a cache of the
conversation stays valid, and a loss mask is the length of the prompt.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NoReturn, Protocol

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.model import tool_turns
from app.model.turns import Turn as Turn
from store import settings
from store.errors import ContextOverflow, ModelFileError
from store.types import Role

DEFAULT_SYSTEM_PROMPT: str = settings.DEFAULTS[settings.SYSTEM_PROMPT]
_JOIN = "\n\n"
_CALLS = "tool_calls"
# Around the number of a content: as it is, as JSON that a template would put into quotes, and inside such quotes.
_MARKS, _JSON, _QUOTED = ("\ue000", "\ue001"), ("\ue002", "\ue003"), ("\ue004", "\ue005")
_MARKED = re.compile(f"{_MARKS[0]}([0-9a-f]+:[0-9]+){_MARKS[1]}")
_MARKED_JSON = re.compile(f'"({_JSON[0]}[0-9a-f]+:[0-9]+{_JSON[1]})"')
_CACHED_CONTENTS = 4096

# A file without a template gets the most widely known form (that of SmolLM2 and Qwen).
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Fitted:
    """A prompt that fits: its tokens, the turns in it, and the earlier turns that were left out."""

    tokens: list[int]
    turns: list[Turn]
    dropped: list[Turn] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        """How many earlier turns were left out."""
        return len(self.dropped)


class Tokenizer(Protocol):
    """What the renderer needs of a vocabulary (`app.model.llama.Vocab`)."""

    @property
    def adds_bos(self) -> bool: ...
    @property
    def bos(self) -> int: ...
    @property
    def eos(self) -> int: ...
    @property
    def end_of_turn(self) -> int: ...
    @property
    def end_ids(self) -> frozenset[int]: ...
    def encode(self, text: str, *, special: bool) -> list[int]: ...
    def control_text(self, token: int) -> str: ...
    def is_control(self, token: int) -> bool: ...


class Renderer:
    """Turns to tokens for one model. Raises ModelFileError when its template cannot be compiled or used."""

    def __init__(
        self, vocab: Tokenizer, template: str | None, system_prompt: str = DEFAULT_SYSTEM_PROMPT
    ) -> None:
        self._vocab = vocab
        self._source = template or CHATML
        self._system_prompt = system_prompt
        self._secret = secrets.token_hex(8)
        self._mark = re.compile(
            f"([{_MARKS[0]}{_JSON[0]}{_QUOTED[0]}]){self._secret}:([0-9]+)[{_MARKS[1]}{_JSON[1]}{_QUOTED[1]}]"
        )
        self._template = _compile(self._source)
        self._content = lru_cache(_CACHED_CONTENTS)(self._encode_content)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits for what decides the tokens: template, default system prompt, end of turn."""
        parts = (self._source, self._system_prompt, self._vocab.control_text(self._vocab.end_of_turn))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a reply."""
        return self._vocab.end_ids | {self._end[-1]}

    @cached_property
    def stop_strings(self) -> tuple[str, ...]:
        """Texts that end a reply, never shown: a small model may spell its control tokens in plain pieces."""
        opening = self._vocab.encode(self._pieces_before_user(), special=True)
        controls = [token for token in (self._end[-1], *opening) if self._vocab.is_control(token)]
        return tuple(dict.fromkeys(filter(None, map(self._vocab.control_text, controls))))

    def prompt(self, turns: Sequence[Turn]) -> list[int]:
        """Tokens of the conversation and of the opening of the assistant's next turn."""
        rendered, contents = self._rendered(self.normalised(turns), opens_reply=True)
        tokens: list[int] = []
        own, *marked = self._mark.split(rendered)
        tokens += self._vocab.encode(own, special=True)
        for kind, index, after in zip(marked[::3], marked[1::3], marked[2::3], strict=True):
            content = contents[int(index)]
            tokens += self._content(
                json.dumps(content, ensure_ascii=False)[1:-1] if kind == _QUOTED[0] else content
            )
            tokens += self._vocab.encode(after, special=True)
        if self._vocab.adds_bos and tokens[:1] != [self._vocab.bos]:
            tokens.insert(0, self._vocab.bos)
        return tokens

    def completion(self, text: str) -> list[int]:
        """Tokens of a reply and the end of its turn: exactly the positions that carry loss."""
        return [*self._content(text), *self._end]

    def unfinished(self, text: str) -> list[int]:
        """Tokens of a reply that has come as far as this text, its turn still open."""
        return list(self._content(text))

    def fit(self, turns: Sequence[Turn], n_ctx: int, reserve: int, step: int = 1) -> Fitted:
        """The end of the conversation that leaves `reserve` of `n_ctx` tokens for the reply.

        Whole exchanges are dropped, oldest first, in steps of about `step` tokens where there are so many; the system
        prompt and the last user message always stay. Raises ContextOverflow when these alone do not fit.
        """
        kept = self.normalised(turns)
        room = n_ctx - reserve
        whole = self.prompt(kept)
        if len(whole) <= room:
            return Fitted(whole, kept)
        head, body = kept[:1], kept[1:]
        starts = [index for index, turn in enumerate(body) if turn.role is Role.USER and index > 0]

        def first_within(most: int) -> int:
            # Fewer exchanges are never longer, so it is found by halving: 8 renderings of 200 exchanges.
            return bisect_left(starts, True, key=lambda at: len(self.prompt([*head, *body[at:]])) <= most)

        # What is dropped is counted from the start: so a conversation that grows is cut at the same place for a while.
        steps = -(-(len(whole) - room) // step)
        first = first_within(len(whole) - steps * step)
        if first == len(starts):
            first = first_within(room)
        if first == len(starts):
            least = len(self.prompt([*head, *body[starts[-1] :]]) if starts else whole)
            raise ContextOverflow(
                f"this message is too long: with the system prompt it takes {least} tokens, and the model's window "
                f"leaves room for {max(room, 0)}: shorten it, or split it up"
            )
        left = [*head, *body[starts[first] :]]
        return Fitted(self.prompt(left), left, body[: starts[first]])

    def normalised(self, turns: Sequence[Turn]) -> list[Turn]:
        """What is rendered: a system prompt first, no empty replies, no two turns of one role in a row."""
        system = [turn.content for turn in turns if turn.role is Role.SYSTEM]
        result = [Turn(Role.SYSTEM, _JOIN.join(system) if system else self._system_prompt)]
        for turn in turns:
            if turn.role is Role.SYSTEM or (turn.role is Role.ASSISTANT and not turn.content.strip()):
                continue
            if turn.role is result[-1].role and turn.role is not Role.TOOL:
                result[-1] = replace(turn, content=result[-1].content + _JOIN + turn.content)
            else:
                result.append(turn)
        return result

    def _encode_content(self, text: str) -> list[int]:
        return self._vocab.encode(text, special=False)

    def _rendered(self, turns: list[Turn], *, opens_reply: bool) -> tuple[str, list[str]]:
        """The template's text with marks, and the contents that the marks stand for."""
        if any(turn.role is Role.TOOL for turn in turns):
            found = self._with_calls(turns, opens_reply=opens_reply)
            if found is not None:
                return found
            turns = self.normalised(tool_turns.as_text(turns))
        try:
            rendered = self._apply(turns, opens_reply=opens_reply)
            system_used = -1 < rendered.find(self._mark_of(0)) < self._place_of(1, rendered)
        except jinja2.TemplateError:
            rendered, system_used = "", False
        if not system_used:
            # Templates such as Gemma's refuse a system turn or leave it out, and Mistral's move it along to the last
            # of the user's, so that a conversation would not grow: it then opens the first user turn.
            turns = _system_folded(turns)
            try:
                rendered = self._apply(turns, opens_reply=opens_reply)
            except jinja2.TemplateError as error:
                raise ModelFileError(
                    f"the model's chat template refuses the conversation: {error}"
                ) from error
        return rendered, [turn.content for turn in turns]

    def _apply(self, turns: list[Turn], *, opens_reply: bool) -> str:
        return self._written(
            [{"role": turn.role.value, "content": self._mark_of(index)} for index, turn in enumerate(turns)],
            opens_reply=opens_reply,
        )

    def _with_calls(self, turns: list[Turn], *, opens_reply: bool) -> tuple[str, list[str]] | None:
        """The same of a conversation in which functions were called; None where the template has no form for that."""
        if _CALLS not in self._source:
            return None
        for given in (turns, _system_folded(turns)):
            contents: list[str] = []
            messages = self._messages_with_calls(given, contents)
            try:
                rendered = self._written(messages, opens_reply=opens_reply)
            except (jinja2.TemplateError, TypeError, ValueError):
                continue
            places = [int(index) for _, index in self._mark.findall(rendered)]
            # All of it once and in its order: what a template leaves out or moves along would be read wrongly.
            if places == [index for index, content in enumerate(contents) if content or index in places]:
                return rendered, contents
        return None

    def _messages_with_calls(self, turns: list[Turn], contents: list[str]) -> list[dict[str, Any]]:
        """Messages as templates take them, with marks; ``contents`` gets what the marks stand for."""

        def mark(content: str, marks: tuple[str, str] = _MARKS) -> str:
            contents.append(content)
            return f"{marks[0]}{self._secret}:{len(contents) - 1}{marks[1]}"

        messages: list[dict[str, Any]] = []
        open_: list[str] = []
        for place, turn in enumerate(turns):
            calling = tool_turns.calling(turns, place)
            message: dict[str, Any] = {"role": turn.role.value}
            if calling is None:
                message["content"] = mark(turn.content)
            else:
                message["content"] = mark(calling.content) if calling.content else ""
                # Nine letters and digits: a form that all families take.
                open_ = [f"call{place:03}{index:02}" for index in range(len(calling.calls))]
                message["tool_calls"] = [
                    {
                        "id": name,
                        "type": "function",
                        "function": {"name": mark(call.name), "arguments": mark(call.arguments, _JSON)},
                    }
                    for name, call in zip(open_, calling.calls, strict=True)
                ]
            if turn.role is Role.TOOL and open_:
                message["tool_call_id"] = open_.pop(0)
            messages.append(message)
        return messages

    def _written(self, messages: list[dict[str, Any]], *, opens_reply: bool) -> str:
        return self._template.render(
            messages=messages,
            add_generation_prompt=opens_reply,
            bos_token=self._vocab.control_text(self._vocab.bos),
            eos_token=self._vocab.control_text(self._vocab.eos),
            # Templates of reasoning models open a hidden monologue unless told not to; others ignore it.
            enable_thinking=False,
        )

    def _place_of(self, index: int, rendered: str) -> int:
        """Where a turn's content stands, or the end."""
        place = rendered.find(self._mark_of(index))
        return place if place >= 0 else len(rendered)

    def _mark_of(self, index: int) -> str:
        return f"{_MARKS[0]}{self._secret}:{index}{_MARKS[1]}"

    @cached_property
    def _end(self) -> list[int]:
        """The tokens with which the template ends an assistant's turn, up to the first that ends a reply."""
        user, reply = Turn(Role.USER, "u"), Turn(Role.ASSISTANT, "a")
        rendered, contents = self._rendered(self.normalised([user, reply]), opens_reply=False)
        after = rendered.rpartition(self._mark_of(len(contents) - 1))[2]
        tokens = self._vocab.encode(after, special=True)
        for index, token in enumerate(tokens):
            if token in self._vocab.end_ids:
                return tokens[: index + 1]
        return [self._vocab.end_of_turn]

    def _pieces_before_user(self) -> str:
        """What the template writes between an assistant's turn and the next user's content."""
        turns = [Turn(Role.USER, "u"), Turn(Role.ASSISTANT, "a"), Turn(Role.USER, "v")]
        rendered, contents = self._rendered(self.normalised(turns), opens_reply=False)
        last = len(contents) - 1
        return rendered.partition(self._mark_of(last - 1))[2].partition(self._mark_of(last))[0]


def _system_folded(turns: list[Turn]) -> list[Turn]:
    system, rest = turns[0], turns[1:]
    if not rest or rest[0].role is not Role.USER:
        return [Turn(Role.USER, system.content), *rest]
    return [Turn(Role.USER, system.content + _JOIN + rest[0].content), *rest[1:]]


class _Generation(Extension):
    """The block in which some templates put what a trainer should learn; of a prompt it is a part like any other."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _compile(source: str) -> jinja2.Template:
    """The environment of transformers, for which templates are written, sandboxed: files are untrusted."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ModelFileError(f"the model's chat template cannot be read: {error}") from error


def _as_json(value: Any, indent: int | None = None, **_form: Any) -> str:
    """The filter that templates are written for, which knows marks: what is JSON already gets no quotes around it."""
    written = json.dumps(value, ensure_ascii=False, indent=indent)
    return _MARKED.sub(rf"{_QUOTED[0]}\1{_QUOTED[1]}", _MARKED_JSON.sub(r"\1", written))


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
