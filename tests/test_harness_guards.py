"""Every guard's check and repair, what a guard may be made of, and that a repair breaks no other guard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.harness import guards, languages, sentences, spelling
from app.harness.guards import TEMPLATES, Verdict, judge
from store.errors import UsageError
from store.items import Item
from store.types import ItemKind, ItemState

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1}}}
CALL = '<tool_call>{"name": "t", "arguments": %s}</tool_call>'
LISTED = "Do this:\n- boil water\n- add tea."


def guard(template: str, **parameters: Any) -> Item:
    body = guards.checked({"template": template, "parameters": parameters})
    return Item(
        f"i-{template}", ItemKind.GUARD, template, 1, ItemState.ACTIVE, body, None, None, 1.0, None, ""
    )


REPAIRED: list[tuple[Item, str, str]] = [
    (guard("length", sentences=2), "One. Two! Three? Four.", "One. Two!"),
    (guard("length", sentences=1), "Ask Dr. Smith at 3.5 m. Not me.", "Ask Dr. Smith at 3.5 m."),
    (guard("length", sentences=1), "첫째 문장입니다. 둘째 문장입니다.", "첫째 문장입니다."),
    (guard("length", words=3), "one two three four", "one two three…"),
    (guard("length", characters=12), "Short one. And a long one.", "Short one."),
    (guard("no_list"), LISTED, "Do this: boil water. add tea."),
    (guard("no_list"), "1. one\n2. two", "one. two."),
    (guard("must_end_with", text="Cheers"), "Done.", "Done. Cheers"),
    (guard("must_end_with", text="?!"), "Really?", "Really?!"),
    (guard("forbidden", phrases=["as an AI"]), "As an  AI I cannot. It is 4.", "It is 4."),
    (guard("spelling", variant="british"), "The Color of `color`.", "The Colour of `color`."),
    (guard("spelling", variant="british"), "The meter says 5 meters.", "The meter says 5 metres."),
    (guard("spelling", variant="american"), "TRAVELLED to the centre", "TRAVELED to the center"),
    (guard("json_schema", schema=SCHEMA), 'Sure:\n```json\n{"n": 3}\n```', '{"n": 3}'),
    (guard("must_end_with", text="\nYours, Ada"), "Done. Yours, Ada", "Done.\n\nYours, Ada"),
    (
        guard("units"),
        "It is 3 feet, an inch or 5-10 miles at 50 °F.",
        "It is 0.9 m, 2.5 cm or 8 to 16 km at 10 °C.",
    ),
    (guard("units", variant="british"), "A colorful 1,000 pounds.", "A colourful 454 kg."),
    (guard("code_only"), "Here:\n```py\nx = 1\n```\nEnjoy.", "```py\nx = 1\n```"),
    (guard("arguments", tool="t", schema=SCHEMA), CALL % '{"n": "3"}', CALL % '{"n": 3}'),
]

LEFT: list[tuple[Item, str]] = [
    (guard("language", language="ko"), "The cat sat on the mat and it is not for you."),
    (guard("language", language="en"), "이것은 한국어로 쓴 긴 답변입니다."),
    (guard("must_contain", text=["source:"]), "It is so."),
    (guard("forbidden", phrases="never"), "It never is."),
    (guard("json_schema", schema=SCHEMA), '{"n": 0}'),
    (guard("code_only"), "print(1)"),
    (guard("ends_with_question"), "It is so."),
    (guard("ends_with_question"), "Is it? It may be. Do you think so?"),
    (guard("arguments", tool="t", schema=SCHEMA), CALL % '{"m": 3}'),
    (guard("path_inside", root="/home/ada/notes"), CALL % '{"path": "a/../../secret"}'),
    (guard("path_inside", root="/home/ada/notes"), CALL % '{"deep": [{"file": "/etc/passwd"}]}'),
    (guard("path_inside", root="/home/ada/notes"), CALL % '{"path": "~/x"}'),
]

BROKEN = [(item, text) for item, text, _ in REPAIRED] + LEFT

PASSED: list[tuple[Item, str]] = [
    (guard("length", sentences=2), "In 1969. Yes."),
    (guard("language", language="ko"), "네."),
    (guard("language", language="en"), "OK"),
    (guard("no_list"), "- just one dash"),
    (guard("no_list"), "```\n- a\n- b\n```"),
    (guard("must_contain", text="Source:"), "source: me"),
    (guard("forbidden", phrases="his"), "This is history."),
    (guard("spelling", variant="british"), "A surprise at the theatre: `color`."),
    (guard("code_only", without_code="passed"), "It is a cat."),
    (guard("units"), "A few miles away: a foot, `3 feet`, 4 m. It costs 30 pounds."),
    (guard("ends_with_question"), "It is so. (And for you?)"),
    (guard("json_schema", schema=SCHEMA), '{"n": 3, "more": true}'),
    (guard("arguments", tool="t", schema=SCHEMA), '<tool_call>{"name": "u", "arguments": {}}</tool_call>'),
    (guard("path_inside", root="/home/ada/notes"), CALL % '{"path": "a/b.txt", "url": "https://x.org/../y"}'),
]


def name(case: tuple[Any, ...]) -> str:
    return f"{case[0].topic}: {case[1][:20]!r}"


@pytest.mark.parametrize("case", REPAIRED, ids=name)
def test_what_can_be_put_right_is(case: tuple[Item, str, str]) -> None:
    judged = judge([case[0]], case[1])
    assert judged.text == case[2]
    assert [finding.verdict for finding in judged.findings] == [Verdict.REPAIRED]
    assert judge([case[0]], judged.text).findings[0].verdict is Verdict.PASSED


@pytest.mark.parametrize("case", LEFT, ids=name)
def test_what_cannot_be_put_right_is_left_and_named(case: tuple[Item, str]) -> None:
    judged = judge([case[0]], case[1])
    assert judged.text == case[1]
    assert [finding.verdict for finding in judged.violations] == [Verdict.VIOLATED]
    assert judged.violations[0].words in guards.request(judged.violations)
    assert judged.violations[0].words in guards.note(judged.violations)


@pytest.mark.parametrize("case", PASSED, ids=name)
def test_a_good_reply_passes_untouched(case: tuple[Item, str]) -> None:
    judged = judge([case[0]], case[1])
    assert (judged.text, judged.findings[0].verdict) == (case[1], Verdict.PASSED)


def test_every_template_is_tried_both_ways() -> None:
    assert {case[0].topic for case in PASSED} | {"must_end_with"} == set(TEMPLATES)
    assert {item.topic for item, _ in BROKEN} == set(TEMPLATES)


def test_a_repair_that_breaks_another_guard_is_not_taken() -> None:
    both = [guard("must_contain", text="tea"), guard("length", sentences=1)]
    judged = judge(both, "Boil water. Then add tea.")
    assert judged.text == "Boil water. Then add tea."
    assert [finding.verdict for finding in judged.findings] == [Verdict.PASSED, Verdict.VIOLATED]


def test_repairs_follow_on_one_another() -> None:
    judged = judge([guard("no_list"), guard("length", sentences=1)], LISTED)
    assert judged.text == "Do this: boil water."


@pytest.mark.parametrize(
    "body",
    [
        {"template": "code", "language": "python", "source": "def check(reply): ..."},
        {"template": "nonsense"},
        {"template": "length"},
        {"template": "length", "parameters": {"sentences": 0}},
        {"template": "length", "parameters": {"sentences": "many"}},
        {"template": "length", "parameters": {"lines": 3}},
        {"template": "language", "parameters": {"language": "klingon"}},
        {"template": "forbidden", "parameters": {"phrases": []}},
        {"template": "json_schema", "parameters": {"schema": {"$ref": "#/x"}}},
        {"template": "json_schema", "parameters": {"schema": {"type": "objet"}}},
        {"template": "json_schema", "parameters": {"schema": {"requird": ["n"]}}},
        {"template": "json_schema", "parameters": {"schema": {"items": {"minimun": 1}}}},
        {"template": "json_schema", "parameters": {"schema": {"pattern": "("}}},
        {"template": "json_schema", "parameters": {"schema": {"$ref": "https://example.org/schema.json"}}},
        {"template": "json_schema", "parameters": {"schema": [1]}},
        {"template": "path_inside", "parameters": {"root": "relative"}},
    ],
    ids=str,
)
def test_what_a_guard_cannot_be_made_of_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        guards.checked(body)


def test_a_guard_of_a_kind_that_is_not_known_here_is_passed_over() -> None:
    foreign = Item(
        "i", ItemKind.GUARD, "x", 1, ItemState.ACTIVE, {"template": "code"}, None, None, 1.0, None, ""
    )
    assert judge([foreign], "anything").findings == ()


def test_a_link_that_leads_out_is_followed(tmp_path: Path) -> None:
    root = tmp_path / "space"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    assert judge([guard("path_inside", root=str(root))], CALL % '{"path": "out/x"}').violations
    assert not judge([guard("path_inside", root=str(root))], CALL % '{"path": "in/x"}').violations


def test_the_record_holds_no_words() -> None:
    judged = judge([guard("forbidden", phrases="never")], "It never is.")
    assert "never" not in str([finding.record(1) for finding in judged.findings])


@given(st.text(alphabet="ab .!?\n-1`é네。", max_size=60))
def test_sentences_joined_are_the_text(text: str) -> None:
    found = sentences.sentences(text)
    assert "".join(found) == text or not text.strip() or text.startswith(tuple(" \n.!?。"))
    assert all(sentence.strip() for sentence in found)


@given(st.text(max_size=80))
def test_no_reply_makes_a_guard_fail(text: str) -> None:
    for item in {item.topic: item for item, _ in BROKEN}.values():
        judged = judge([item], text)
        assert judged.text == text or judged.findings[0].verdict is Verdict.REPAIRED


def test_both_spellings_come_back() -> None:
    british = "The colour of the organisation's centre was analysed; the neighbours travelled by aeroplane."
    american = spelling.respelt(british, "american")
    assert (
        american == "The color of the organization's center was analyzed; the neighbors traveled by airplane."
    )
    assert spelling.respelt(american, "british") == british
    assert spelling.foreign(british, "british") == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Der Hund ist nicht auf dem Sofa, und die Katze auch nicht.", "de"),
        ("Le chat est sur la table et il ne veut pas des croquettes.", "fr"),
        ("これは日本語で書かれた文章です。", "ja"),
        ("Это предложение написано по-русски.", "ru"),
        ("x = 1", None),
        ("```\nthe the the the of of of and and\n```", None),
    ],
)
def test_languages_are_told_apart(text: str, language: str | None) -> None:
    assert languages.of(text) == language


@pytest.mark.parametrize(
    ("text", "blocks", "around"),
    [
        ("a\n```py\nx\n```\nb", ["```py\nx\n```"], "a\n\nb"),
        ("~~~\n```\n~~~~\nb\n", ["~~~\n```\n~~~~"], "\nb\n"),
        ("````\n```\nx\n````", ["````\n```\nx\n````"], ""),
        ("```\nopen", [], "```\nopen"),
        ("~~~ open\n```\nx\n```", ["```\nx\n```"], "~~~ open\n"),
        ("```a```\n```\nx\n``` \n", ["```\nx\n``` "], "```a```\n\n"),
        ("```\n```", ["```\n```"], ""),
        ("    ```\n```\nx", [], "    ```\n```\nx"),
    ],
)
def test_code_is_what_stands_between_fences(text: str, blocks: list[str], around: str) -> None:
    assert sentences.fenced(text) == blocks
    assert sentences.prose(text) == around
    assert sentences.outside_code(text, lambda outside: outside) == text


@pytest.mark.parametrize("mark", ["```x\n~~~~\n", "````\n```\n", ".", "e.g. "])
def test_marks_alone_take_no_longer_than_words(mark: str) -> None:
    """With one look ahead for each mark these take up to an hour."""
    text = mark * (600_000 // len(mark)) + "x"
    assert "".join(sentences.sentences(text)) == text
    assert sentences.outside_code(text, lambda outside: outside) == text
