"""Numbers that prove themselves by a checksum or by who may issue them: cards, IBANs, national ids.

Prose is full of long numbers, and a checksum alone lets one in ten through: so a card also needs an issuer's prefix
with a length that issuer uses and the grouping that is printed on cards, an IBAN its country's length. A Korean
resident number issued since October 2020 has no checksum any more (its last six digits are random, and so is that
of whoever got a new one since), so its date decides, and where the birth was earlier, a word beside it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from store.redaction.placeholders import Hit

_BEFORE: Final = r"(?<![0-9A-Za-z_])(?<![0-9A-Za-z]-)(?<![0-9]\.)"
_AFTER: Final = r"(?![0-9A-Za-z_])(?![-.][0-9])"

_CARD: Final = (
    rf"{_BEFORE}(?:[0-9]{{13,19}}"
    r"|[0-9]{4}(?P<four>[ .-])[0-9]{4}(?P=four)[0-9]{4}(?P=four)[0-9]{1,4}"
    r"|[0-9]{4}(?P<amex>[ .-])[0-9]{6}(?P=amex)[0-9]{4,5})"
    rf"{_AFTER}"
)
# Prefixes and lengths by ISO/IEC 7812 as the schemes publish them: (first, last, lengths). Korean domestic cards
# of BC Card begin with 94.
_ISSUERS: Final[tuple[tuple[str, str, frozenset[int]], ...]] = (
    ("4", "4", frozenset({13, 16, 19})),  # Visa
    ("51", "55", frozenset({16})),  # Mastercard
    ("2221", "2720", frozenset({16})),
    ("34", "34", frozenset({15})),  # American Express
    ("37", "37", frozenset({15})),
    ("6011", "6011", frozenset({16, 19})),  # Discover
    ("644", "659", frozenset({16, 19})),
    ("300", "305", frozenset({14, 16})),  # Diners Club
    ("36", "36", frozenset({14, 16})),
    ("38", "39", frozenset({14, 16})),
    ("3528", "3589", frozenset({16, 19})),  # JCB
    ("62", "62", frozenset({16, 17, 18, 19})),  # UnionPay
    ("81", "81", frozenset({16, 19})),
    ("2200", "2204", frozenset({16, 19})),  # Mir
    ("50", "50", frozenset({16, 18, 19})),  # Maestro
    ("56", "58", frozenset({16, 18, 19})),
    ("67", "67", frozenset({16, 18, 19})),
    ("94", "94", frozenset({16})),  # BC Card
)

_IBAN_START: Final = r"(?<![0-9A-Za-z_])[A-Za-z]{2}[0-9]{2}"
# Lengths by the IBAN registry of SWIFT (ISO 13616).
_IBAN_LENGTHS: Final[dict[str, int]] = {
    country: int(length)
    for length, countries in {
        "15": "NO",
        "16": "BE",
        "18": "DK FI FO GL NL SD",
        "19": "MK SI",
        "20": "AT BA EE KZ LT LU MN XK",
        "21": "CH HR LI LV",
        "22": "BG BH CR DE GB GE IE ME RS VA",
        "23": "AE GI IL IQ OM SO TL",
        "24": "AD CZ ES MD PK RO SA SE SK TN VG",
        "25": "LY PT ST",
        "26": "IS TR",
        "27": "BI DJ FR GR IT MC MR SM",
        "28": "AL AZ BY CY DO GT HN HU LB NI PL SV",
        "29": "BR EG PS QA UA",
        "30": "JO KW MU YE",
        "31": "MT SC",
        "32": "LC",
        "33": "RU",
    }.items()
    for country in countries.split()
}

_RRN: Final = rf"{_BEFORE}(?P<birth>[0-9]{{6}})(?P<dash> ?- ?| ?)(?P<rest>[0-9]{{7}}){_AFTER}"
_SSN: Final = (
    rf"{_BEFORE}(?P<area>[0-9]{{3}})(?P<dash>[ -]?)(?P<group>[0-9]{{2}})"
    rf"(?P=dash)(?P<serial>[0-9]{{4}}){_AFTER}"
)
_RRN_WORDS: Final = r"주민|외국인 ?등록|RRN|resident registration|alien registration"
_SSN_WORDS: Final = r"SSN|ITIN|\bsoc(?:ial)?\b|taxpayer id|사회보장"
_NEAR: Final = 40
_RANDOM_SINCE: Final = datetime.date(2020, 10, 1)
_RRN_WEIGHTS: Final = (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)
# The century of birth by the seventh digit; 5 to 8 are foreign residents.
_CENTURIES: Final = {"9": 1800, "0": 1800, "1": 1900, "2": 1900, "5": 1900, "6": 1900} | dict.fromkeys(
    "3478", 2000
)
# A bar code that begins with 88 (Korea) would otherwise read as a birth in 2088.
_LATEST_BIRTH: Final = 2049


def cards(text: str) -> Iterator[Hit]:
    """Payment card numbers, bare or grouped as printed."""
    for match in _compiled(_CARD).finditer(text):
        digits = re.sub(r"[^0-9]", "", match[0])
        if _issued(digits) and luhn(digits):
            yield Hit(*match.span(), digits)


def ibans(text: str) -> Iterator[Hit]:
    """International bank account numbers, bare or in groups."""
    for match in _compiled(_IBAN_START).finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2].upper())
        if length is None:
            continue
        account, end = _gather(text, match.start(), length)
        whole = len(account) == length and re.match(r"[0-9A-Za-z]", text[end : end + 1]) is None
        if whole and mod97(account) == 1:
            yield Hit(match.start(), end, account)


def national_ids(text: str) -> Iterator[Hit]:
    """Korean resident and foreigner registration numbers, US social security and taxpayer numbers."""
    for match in _compiled(_RRN).finditer(text):
        if _is_rrn(match["birth"], match["rest"], match["dash"], _near(text, match.start(), _RRN_WORDS)):
            yield Hit(*match.span(), match["birth"] + match["rest"])
    for match in _compiled(_SSN).finditer(text):
        named = match["dash"] == "-" or _near(text, match.start(), _SSN_WORDS)
        if named and _is_ssn(match["area"], match["group"], match["serial"]):
            yield Hit(*match.span(), match["area"] + match["group"] + match["serial"])


def luhn(digits: str) -> bool:
    """Checksum of ISO/IEC 7812-1: every second digit from the right doubled, the sum divisible by ten."""
    doubled = (int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def mod97(account: str) -> int:
    """Remainder of ISO 7064 MOD 97-10 over an IBAN with its first four characters at the end; 1 where it is whole."""
    return int("".join(str(int(char, 36)) for char in account[4:] + account[:4])) % 97


def rrn_checks(number: str) -> bool:
    """Whether the last of 13 digits fits: 11 less the weighted sum mod 11, for foreigners two more; its last digit."""
    total = sum(int(digit) * weight for digit, weight in zip(number[:12], _RRN_WEIGHTS, strict=True))
    return ((13 if number[6] in "5678" else 11) - total % 11) % 10 == int(number[12])


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _issued(digits: str) -> bool:
    return any(
        first <= digits[: len(first)] <= last and len(digits) in lengths for first, last, lengths in _ISSUERS
    )


def _gather(text: str, start: int, length: int) -> tuple[str, int]:
    """The next ``length`` letters and digits, with single spaces or hyphens between them, and where they end."""
    account: list[str] = []
    position = start
    for position in range(start, min(len(text), start + 2 * length)):
        char = text[position]
        if char.isascii() and char.isalnum():
            account.append(char.upper())
            if len(account) == length:
                return "".join(account), position + 1
        elif char not in " -" or text[position - 1] in " -":
            break
    return "".join(account), position


def _near(text: str, start: int, words: str) -> bool:
    return re.search(words, text[max(0, start - _NEAR) : start], re.IGNORECASE) is not None


def _is_rrn(birth: str, rest: str, dash: str, named: bool) -> bool:
    born = _birth(birth, _CENTURIES[rest[0]])
    if born is None:
        return False
    if named or rrn_checks(birth + rest):
        return True
    return "-" in dash and born >= _RANDOM_SINCE


def _birth(digits: str, century: int) -> datetime.date | None:
    try:
        born = datetime.date(century + int(digits[:2]), int(digits[2:4]), int(digits[4:]))
    except ValueError:
        return None
    return born if born.year <= _LATEST_BIRTH else None


def _is_ssn(area: str, group: str, serial: str) -> bool:
    """By the Social Security Administration: never area 000, 666 or 900 and up, group 00, serial 0000.

    Numbers from 900 with a group of 50 to 65, 70 to 88, 90 to 92 or 94 to 99 are taxpayer numbers (ITIN).
    """
    if serial == "0000":
        return False
    if area >= "900":
        return "50" <= group <= "65" or "70" <= group <= "88" or group in "90 91 92 94 95 96 97 98 99".split()
    return area not in ("000", "666") and group != "00"
