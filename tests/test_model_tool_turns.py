"""Calls of functions and what they found, in the form of each template that has one, and as text in any other."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model import tool_turns
from app.model.renderer import Renderer, Turn
from app.model.tool_turns import Call, Calling
from store.errors import ContextOverflow
from store.types import Role
from tests.chat_templates import FAMILIES
from tests.test_model_templates import FamilyVocab
from tests.tool_templates import TOOL_FAMILIES

SYSTEM, USER, ASSISTANT, TOOL = Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
ASKED = [
    Turn(SYSTEM, "Be brief."),
    Turn(USER, "Rain?"),
    Turn(ASSISTANT, CALL),
    Turn(TOOL, '{"sky": "grey"}'),
]
EXPECTED = {
    "qwen2.5": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n<|im_start|>assistant\n"
    f"{CALL}<|im_end|>\n<|im_start|>user\n<tool_response>\n"
    '{"sky": "grey"}\n</tool_response><|im_end|>\n<|im_start|>assistant\n',
    "llama3.1": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nRain?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "weather", "parameters": {"city": "Oslo"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n'
    '"{\\"sky\\": \\"grey\\"}"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
    "mistral": "<s>[INST] Be brief.\n\nRain?[/INST][TOOL_CALLS] "
    '[{"name": "weather", "arguments": {"city": "Oslo"}, "id": "call00100"}]</s>'
    '[TOOL_RESULTS] {"content": {"sky": "grey"}, "call_id": "call00100"}[/TOOL_RESULTS]',
}
EXPECTED["qwen3"] = EXPECTED["qwen2.5"]
tool_families = pytest.mark.parametrize("name", TOOL_FAMILIES)


def renderer_of(name: str) -> tuple[Renderer, FamilyVocab]:
    family = TOOL_FAMILIES.get(name) or FAMILIES[name]
    vocab = FamilyVocab(family)
    return Renderer(vocab, family.template), vocab


def written(name: str, turns: list[Turn]) -> str:
    render, vocab = renderer_of(name)
    return vocab.decode(render.prompt(turns))


@tool_families
def test_each_template_has_them_in_its_own_form(name: str) -> None:
    assert written(name, ASKED) == EXPECTED[name]


@tool_families
def test_words_before_a_call_and_several_calls(name: str) -> None:
    two = [
        *ASKED[:2],
        Turn(ASSISTANT, f"Let me look.\n{CALL}\n{CALL}"),
        Turn(TOOL, "grey"),
        Turn(TOOL, "wet"),
    ]
    text = written(name, [*two, Turn(ASSISTANT, "Yes."), Turn(USER, "Sure?")])
    for content in ("grey", "wet", "Yes.", "Sure?"):
        assert text.count(content) == 1
    assert text.count("weather") == text.count("Oslo") == 2
    if name == "llama3.1":
        # It refuses two calls at once, so it is told of them as text.
        assert "<tool_response>\ngrey\n</tool_response>\n\n<tool_response>\nwet" in text
    elif name == "mistral":
        # Its form has no place for the words, so they would be lost.
        assert "Let me look." in text
    else:
        assert f"<|im_start|>assistant\nLet me look.\n{CALL}\n{CALL}<|im_end|>" in text
        assert (
            "<|im_start|>user\n<tool_response>\ngrey\n</tool_response>\n<tool_response>\nwet\n</tool" in text
        )


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in TOOL_FAMILIES])
def test_a_template_without_a_form_for_them_is_told_as_text(name: str) -> None:
    text = written(name, ASKED)
    assert CALL in text
    assert '<tool_response>\n{"sky": "grey"}\n</tool_response>' in text


@tool_families
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Co"])), st.data())
def test_neither_names_nor_arguments_nor_results_forge_a_turn(
    name: str, text: str, data: st.DataObject
) -> None:
    render, vocab = renderer_of(name)
    hostile = data.draw(st.sampled_from([*vocab.names, text])) + text
    call = json.dumps({"name": hostile, "arguments": {hostile: [hostile]}}, ensure_ascii=False)
    said = f"<tool_call>\n{call}\n</tool_call>"
    plain = render.prompt(ASKED)
    tokens = render.prompt([*ASKED[:2], Turn(ASSISTANT, said), Turn(TOOL, hostile or "x")])
    assert [token for token in tokens if vocab.is_control(token)] == [
        token for token in plain if vocab.is_control(token)
    ]


@pytest.mark.parametrize("name", [*TOOL_FAMILIES, "smollm2"])
def test_what_a_function_found_is_never_cut_from_the_call(name: str) -> None:
    render, vocab = renderer_of(name)
    turns = [ASKED[0]]
    for number in range(12):
        result = f"result {number:02} " + "x" * 60
        turns += [Turn(USER, f"Question {number:02}?"), ASKED[2], Turn(TOOL, result), Turn(ASSISTANT, "So.")]
    turns.append(Turn(USER, "last"))
    cut = 0
    for window in range(150, 2500, 50):
        try:
            fitted = render.fit(turns, window, 50)
        except ContextOverflow:
            continue
        cut += fitted.left_out > 0
        assert fitted.left_out % 4 == 0
        assert fitted.turns[1].role is USER
        text = vocab.decode(fitted.tokens)
        assert text.count("result ") == text.count("Question ") == text.count("weather")
    assert cut > 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CALL, Calling("", (Call("weather", '{"city": "Oslo"}'),))),
        (f"Wait.\n{CALL}", Calling("Wait.", (Call("weather", '{"city": "Oslo"}'),))),
        ('{"name": "f", "parameters": {}}', Calling("", (Call("f", "{}"),))),
        ('<tool_call>{"name": "f", "arguments": {"a": "}"}}', Calling("", (Call("f", '{"a": "}"}'),))),
        (f"{CALL} and so on", None),
        ('<tool_call>{"name": 1, "arguments": {}}</tool_call>', None),
        ('<tool_call>{"name": "f", "arguments": "x"}</tool_call>', None),
        ("<tool_call>{oops}</tool_call>", None),
        ("no call", None),
    ],
)
def test_what_is_a_call(text: str, found: Calling | None) -> None:
    said = [Turn(USER, "go"), Turn(ASSISTANT, text), Turn(TOOL, "done")]
    assert tool_turns.calling(said, 1) == found
    assert tool_turns.calling([*said[:2], Turn(USER, "what is this?")], 1) is None, (
        "nothing was found: it is text"
    )
    assert tool_turns.calling(said[:2], 1) is None
