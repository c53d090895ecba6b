"""Telephone numbers: the shapes people write, each checked against the numbering plans of `phonenumbers`.

The library's own matcher reads a text once for each region and takes ten-digit order numbers for American ones. So
a number must first look like one: an international prefix, a trunk zero with the groups of Korea or Britain, the
3-3-4 of North America. Then the library says whether such a number can be assigned, and what it is in E.164, which
makes `010-1234-5678` and `+82 10 1234 5678` the same person. Bare digits and spaced groups in the American form need
a word like "call" beside them. Korea's short service numbers (1588-…) are nobody's own, and look like years.

The library is imported when a text first has such a shape: it takes 0.08 s, more than all else a rating needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

from store.redaction.placeholders import Hit

_BEFORE: Final = r"(?<![0-9A-Za-z_#])(?<![0-9A-Za-z]-)(?<![0-9][.,:/])"
_AFTER: Final = r"(?![0-9A-Za-z_])(?![-.,:/][0-9])"

_INTERNATIONAL: Final = (
    rf"{_BEFORE}(?:\+|00[12][ -]|00[ -]?)"
    r"(?P<intl>[1-9][0-9]{0,14}(?:(?: ?\(0?[0-9]{0,4}\) ?|[ .-])[0-9]{1,12}){0,6})"
)
_KOREAN: Final = rf"{_BEFORE}\(?(?P<kr>0[0-9]{{1,3}}\)?[ .-]{{0,2}}[0-9]{{3,4}}[ .-]?[0-9]{{4}}){_AFTER}"
_SLASHED: Final = rf"{_BEFORE}01[016-9]/[0-9]{{3,4}}/[0-9]{{4}}{_AFTER}"
_BRITISH: Final = rf"{_BEFORE}\(?(?P<gb>0[1-9][0-9]{{1,4}}\)?[ -]?[0-9]{{3,4}}[ -]?[0-9]{{3,6}}){_AFTER}"
_AMERICAN: Final = (
    rf"{_BEFORE}(?:1[ .-]?)?\(?[2-9][0-9]{{2}}(?P<mid>\) ?|\)?[./-]| |)[2-9][0-9]{{2}}"
    rf"(?P<last>[ .-]?)[0-9]{{4}}{_AFTER}"
)
_DIGITS: Final = "공일이삼사오육칠팔구"
_SPOKEN: Final = rf"(?<![가-힣])[공영]일[공영일육칠팔구][ -]?[영{_DIGITS}]{{3,4}}[ -]?[영{_DIGITS}]{{4}}"
# British mobile ranges are handed out faster than the library learns of them; +44 1632 960 is kept for drama, and
# in a conversation as telling as any other number.
_ALWAYS: Final = re.compile(r"\+447[1-9][0-9]{8}|\+441632960[0-9]{3}")
_WORDS: Final = re.compile(
    r"\b(?:call|phone|tele?|tel|mobile|cell|te?xt|sms|fax|whatsapp|reach|ring|dial|contact|number is)\b"
    r"|☎|📞|전화|연락|휴대폰|핸드폰|번호|문자|팩스",
    re.IGNORECASE,
)
_NEAR: Final = 40


_Patterns = tuple[re.Pattern[str], tuple[tuple[re.Pattern[str], str], ...], re.Pattern[str], re.Pattern[str]]


def find(text: str) -> Iterator[Hit]:
    """Every telephone number in the view ``text``. Hits may overlap."""
    international, national, american, spoken = _patterns()
    for match in international.finditer(text):
        yield from _longest_valid(text, match)
    for pattern, region in national:
        for match in pattern.finditer(text):
            number = e164(re.sub(r"[^0-9]", "", match[0]), region)
            if number is not None:
                yield Hit(*_with_bracket(match), number)
    for match in spoken.finditer(text):
        digits = "".join(str(_DIGITS.find(char)) for char in match[0].replace("영", "공") if char in _DIGITS)
        number = e164(digits, "KR")
        if number is not None:
            yield Hit(*match.span(), number)
    for match in american.finditer(text):
        grouped = match["last"] in ("-", ".") or ")" in match["mid"]
        if grouped or _WORDS.search(text[max(0, match.start() - _NEAR) : match.start()]):
            number = e164(re.sub(r"[^0-9]", "", match[0]), "US")
            if number is not None:
                yield Hit(*match.span(), number)


@lru_cache(maxsize=4096)
def e164(digits: str, region: str | None) -> str | None:
    """A number in international form, where one like it can be assigned; else None. ``region`` is an ISO country."""
    import phonenumbers

    try:
        number = phonenumbers.parse(digits, region)
    except phonenumbers.NumberParseException:
        return None
    written: str = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
    return written if phonenumbers.is_valid_number(number) or _ALWAYS.fullmatch(written) else None


@cache
def _patterns() -> _Patterns:
    national = ((re.compile(_KOREAN), "KR"), (re.compile(_SLASHED), "KR"), (re.compile(_BRITISH), "GB"))
    return re.compile(_INTERNATIONAL), national, re.compile(_AMERICAN), re.compile(_SPOKEN)


def _longest_valid(text: str, match: re.Match[str]) -> Iterator[Hit]:
    """The longest run of whole groups that is a number: what follows may be another one."""
    ends = [found.end() for found in re.finditer(r"[0-9]+\)?", match["intl"])]
    for end in reversed(ends):
        last = match.start("intl") + end
        digits = re.sub(r"\(0\)|[^0-9]", "", match["intl"][:end])
        if len(digits) < 8 or re.match(r"[0-9A-Za-z_]", text[last : last + 1]):
            continue
        number = e164(f"+{digits}", None)
        if number is not None:
            yield Hit(match.start(), last, number)
            return


def _with_bracket(match: re.Match[str]) -> tuple[int, int]:
    """A bracket that opens before the number belongs to it only if it also closes within it."""
    opened = match[0].startswith("(") and ")" not in match[0]
    return match.start() + opened, match.end()
