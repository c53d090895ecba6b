"""What holds for every text: stable names, exact spans, redacting twice is redacting once, nothing shown or logged."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.redaction import REDACTION_VERSION, Kind, Placeholders, Redactor, contains_secret, version
from store.redaction.placeholders import LABELS, PLACEHOLDER
from store.redaction.view import MARK, View

WORDS = ("Jane", "김민수", "EMAIL", "1", "[EMAIL_1]", "PHONE_1")
# Pieces that meet in every order: what is found, what shields it, and what a replacement may leave behind.
PIECES = st.sampled_from(
    [
        *("jane@example.org", "bob@example.com", "010-1234-5678", "(212) 555-0123", "+44 20 7946 0958"),
        *(
            "4526018159083012",
            "4526 0181 5908 3012",
            "DE89 3704 0044 0532 0130 00",
            "900101-1751124",
            "536-22-8145",
        ),
        *(
            "203.0.113.42",
            "2001:db8::1:8a2e:370",
            "password: ",
            "password",
            " is ",
            "비밀번호는 ",
            "hunter2",
            "token=",
        ),
        *(
            "sk-" + "proj-aB3dE5fG7hI9jK1lM3nO5pQ7rS9",
            "-----BEGIN PRI" + "VATE KEY-----",
            "postgres://a:b4d@",
            "PIN ",
        ),
        *(
            "Jane",
            "김민수",
            "[EMAIL_1]",
            "[PHONE_99999]",
            "[ID_",
            "]",
            "_1]",
            "[",
            MARK,
            "4",
            "1",
            "a",
            "가",
            "로",
        ),
        *(
            " ",
            "\n",
            ".",
            ",",
            ":",
            "-",
            "@",
            "/",
            "(",
            ")",
            "+",
            '"',
            "'",
            "=",
            "０１０－１２３４－５６７８",
            "\u00a0",
        ),
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=14).map("".join)


@given(TEXTS)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    redactor, names = Redactor(WORDS), Placeholders()
    once = redactor.redact(text, names).text
    assert redactor.redact(once, names).text == once
    assert redactor.redact(once).text == once
    assert redactor.redact(once).found == ()
    assert not contains_secret(once)


@given(TEXTS)
def test_findings_are_exactly_what_was_replaced(text: str) -> None:
    redacted = Redactor(WORDS).redact(text)
    rest = re.escape(text[: redacted.found[0].start]) if redacted.found else re.escape(text)
    for index, finding in enumerate(redacted.found):
        end = redacted.found[index + 1].start if index + 1 < len(redacted.found) else len(text)
        assert finding.start < finding.end <= end
        rest += rf"\[{LABELS[finding.kind]}_[0-9]+\]" + re.escape(text[finding.end : end])
    assert re.fullmatch(rest, redacted.text)
    assert Redactor(WORDS).redact(text) == redacted


@given(TEXTS)
def test_a_secret_is_reported_wherever_one_is_redacted(text: str) -> None:
    found = Redactor().redact(text).found
    # A later round may uncover one more; the first already decides.
    assert contains_secret(text) <= any(finding.kind is Kind.SECRET for finding in found)


@given(TEXTS, st.lists(st.integers(0, 30), max_size=4))
def test_a_view_maps_back_to_the_text(text: str, cuts: list[int]) -> None:
    placeholders = [match.span() for match in PLACEHOLDER.finditer(text)]
    borders = sorted({cut for cut in cuts if cut <= len(text)})
    claimed = [
        (start, end)
        for start, end in zip(borders[::2], borders[1::2], strict=False)
        if not any(start < other_end and other < end for other, other_end in placeholders)
    ]
    view = View(text, claimed)
    for place, char in enumerate(view.text):
        start, end = view.original(place, place + 1)
        if char != MARK:
            assert View(text[start:end]).text == char


def test_names_are_stable_within_a_conversation_and_kept_apart_between_two() -> None:
    redactor, first, second = Redactor(), Placeholders(), Placeholders()
    assert (
        redactor.redact("from bob@example.com to jane@example.org", first).text
        == "from [EMAIL_1] to [EMAIL_2]"
    )
    assert redactor.redact("JANE@example.org wrote", first).text == "[EMAIL_2] wrote"
    assert redactor.redact("JANE@example.org wrote", second).text == "[EMAIL_1] wrote"


def test_a_number_somebody_typed_is_not_given_to_another() -> None:
    assert Redactor().redact("[EMAIL_1] and bob@example.com").text == "[EMAIL_1] and [EMAIL_2]"
    assert Redactor().redact("[EMAIL_999999] bob@example.com").text == "[EMAIL_999999] [EMAIL_1]"


def test_the_earlier_detector_has_the_overlap() -> None:
    assert Redactor(["example"]).redact("password: jane@example.org").text == "password: [SECRET_1]"
    assert Redactor(["example"]).redact("to jane@example.org, example").text == "to [EMAIL_1], [PRIVATE_1]"
    assert Redactor().redact("카드 4526-0181-5908-3012").text == "카드 [CARD_1]"


def test_nothing_of_the_text_shows_in_logs_or_in_reprs(caplog: pytest.LogCaptureFixture) -> None:
    names = Placeholders()
    with caplog.at_level(logging.DEBUG):
        redacted = Redactor(["Hartwell"]).redact("Hartwell: hunter2@example.org, password: hunter2", names)
    shown = f"{names!r} {redacted!r} {names.__dict__.keys()}"
    assert caplog.text == ""
    assert "hunter2" not in shown
    assert "Hartwell" not in shown


def test_the_version_is_short_and_says_what_made_it() -> None:
    assert re.fullmatch(r"1-[0-9a-f]{12}", REDACTION_VERSION)
    modules = {path.stem for path in Path(version.__file__).parent.glob("*.py")}
    assert set(version.RULES) == modules - {"__init__", "training", "version"}


# The benchmark times a megabyte of each; a pattern that is not linear would hang on this much already.
@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "1",
        "a@",
        "a.",
        "1:",
        "-eyJ",
        "password ",
        "pin1234",
        'pw="',
        "-----BEGIN PRI" + "VATE KEY-----\n",
        " ",
    ],
)
def test_hostile_text_is_read_in_one_go(piece: str) -> None:
    text = piece * (30_000 // len(piece))
    assert len(Redactor(["Jane Doe"]).redact(text).text) > 0
