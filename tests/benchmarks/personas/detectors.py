"""Whether a reply keeps to a rule, and what a person who edits makes of one that does not.

Each rule is a pair of pure functions on text. A detector that a benchmark rests on must not be lenient: an empty reply
keeps to no rule, and one that was cut off is judged as it stands. The edit keeps as much of the reply as the rule
allows, as a person does who likes the rest, and what it makes always passes its detector (a test says so).
"""

from __future__ import annotations

import re
from functools import partial

LIST_LINE = re.compile(r"^\s*(?:[-*•+]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<!\d)[.!?](?=[\s\"')]|$)")
_HEADING = re.compile(r"^\s*#+\s*|\*\*|__", re.MULTILINE)
MOST_WORDS = 60
SIGN_OFF = "Hope that helps, Bo"

AMERICAN = {
    "color": "colour",
    "colors": "colours",
    "colored": "coloured",
    "colorful": "colourful",
    "favorite": "favourite",
    "favorites": "favourites",
    "flavor": "flavour",
    "flavors": "flavours",
    "neighbor": "neighbour",
    "neighbors": "neighbours",
    "neighborhood": "neighbourhood",
    "behavior": "behaviour",
    "behaviors": "behaviours",
    "humor": "humour",
    "honor": "honour",
    "labor": "labour",
    "harbor": "harbour",
    "rumor": "rumour",
    "center": "centre",
    "centers": "centres",
    "theater": "theatre",
    "theaters": "theatres",
    "liter": "litre",
    "liters": "litres",
    "meter": "metre",
    "meters": "metres",
    "kilometer": "kilometre",
    "kilometers": "kilometres",
    "centimeter": "centimetre",
    "centimeters": "centimetres",
    "organize": "organise",
    "organized": "organised",
    "organizing": "organising",
    "organization": "organisation",
    "recognize": "recognise",
    "recognized": "recognised",
    "realize": "realise",
    "analyze": "analyse",
    "analyzing": "analysing",
    "apologize": "apologise",
    "prioritize": "prioritise",
    "specialized": "specialised",
    "gray": "grey",
    "traveling": "travelling",
    "traveled": "travelled",
    "jewelry": "jewellery",
    "fiber": "fibre",
    "catalog": "catalogue",
    "mold": "mould",
}
_AMERICAN = re.compile(rf"\b({'|'.join(AMERICAN)})\b", re.IGNORECASE)

_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
# pattern of the unit; factor; offset before the factor; the metric unit
_UNITS: tuple[tuple[str, float, float, str], ...] = (
    (r"(?:degrees\s+fahrenheit|°\s?f|degrees\s+f)\b", 5 / 9, -32.0, "°C"),
    (r"(?:miles per hour|mph)\b", 1.609, 0.0, "km/h"),
    (r"(?:mile|miles|mi)\b", 1.609, 0.0, "km"),
    (r"(?:feet|foot|ft)\b", 0.3048, 0.0, "m"),
    (r"(?:inches|inch)\b", 2.54, 0.0, "cm"),
    (r"(?:yards|yard)\b", 0.9144, 0.0, "m"),
    (r"(?:pounds|pound|lbs|lb)\b", 0.4536, 0.0, "kg"),
    (r"(?:ounces|ounce|oz)\b", 28.35, 0.0, "g"),
    (r"(?:gallons|gallon)\b", 3.785, 0.0, "litres"),
)
_IMPERIAL = re.compile(
    r"\b(miles?|mph|feet|foot|inch(?:es)?|yards?|pounds?|lbs?|ounces?|gallons?|fahrenheit)\b|°\s?F\b",
    re.IGNORECASE,
)
_MEASURED = tuple(
    (re.compile(rf"{_NUMBER}[\s-]*{unit}", re.IGNORECASE), factor, offset, metric)
    for unit, factor, offset, metric in _UNITS
)
_METRIC_WORDS = {
    "mile": "kilometre",
    "miles": "kilometres",
    "mph": "km/h",
    "feet": "metres",
    "foot": "metre",
    "inch": "centimetre",
    "inches": "centimetres",
    "yard": "metre",
    "yards": "metres",
    "pound": "kilogram",
    "pounds": "kilograms",
    "lb": "kg",
    "lbs": "kg",
    "ounce": "gram",
    "ounces": "grams",
    "gallon": "litre",
    "gallons": "litres",
    "fahrenheit": "Celsius",
}

_FORMAL_END = re.compile(r"(?:니다|니까|십시오|시오)$")
_HANGUL = re.compile(r"[가-힣]")
_FENCE = re.compile(r"```[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_CODE_LINE = re.compile(
    r"^(?:\s*(?:def|class|for|while|if|elif|else|try|except|finally|with|return|import|from|print|raise|break|"
    r"continue|pass|async|await|lambda|assert|yield|del|global)\b.*|\s*[@#}\])].*|\s*[\w.\[\]\"', ]+\s*[-+*/|]?=.*|"
    r"\s*[\w.]+(?:\[[^\]]*\])*\(.*|\s*\"[^\"]*\"\..*|\s*\w+\[.*\]|\s+.*)$"
)


def sentences(text: str) -> int:
    """How many sentences a text has; a last piece without an end counts."""
    body = text.strip()
    if not body:
        return 0
    ends = len(_SENTENCE_END.findall(body))
    return ends if body[-1] in ".!?\"')" and ends else ends + 1


def prose(text: str) -> str:
    """The text as one paragraph: list marks and headings gone, each line a sentence."""
    lines = []
    for raw in _HEADING.sub("", text).splitlines():
        line = LIST_LINE.sub("", raw).strip()
        if line:
            lines.append(line if line[-1] in ".!?:;," else line + ".")
    return " ".join(lines)


def first_sentences(text: str, most: int) -> str:
    """The first sentences of a text as prose; all of it where it has no more."""
    plain = prose(text)
    ends = [match.end() for match in _SENTENCE_END.finditer(plain)]
    return plain[: ends[min(most, len(ends)) - 1]].strip() if ends else plain


def few_words(text: str) -> str:
    """One sentence, cut where it would be too long."""
    words = first_sentences(text, 1).split()
    return (
        " ".join(words)
        if len(words) <= MOST_WORDS
        else " ".join(words[: MOST_WORDS // 2]).rstrip(",;:") + "."
    )


def is_brief(text: str) -> bool:
    """One or two sentences, no list, at most 60 words."""
    return (
        bool(text.strip())
        and sentences(text) <= 2
        and not LIST_LINE.search(text)
        and len(text.split()) <= MOST_WORDS
    )


def has_no_list(text: str) -> bool:
    """Some text, and no line that begins like a list item."""
    return bool(text.strip()) and not LIST_LINE.search(text)


def is_signed(text: str) -> bool:
    """The last line is the sign-off."""
    return text.strip().endswith("\n" + SIGN_OFF)


def asks_back(text: str) -> bool:
    """It ends with one question, and has said something before."""
    body = text.strip()
    return body.endswith("?") and body.count("?") == 1 and sentences(body) >= 2


def is_british(text: str) -> bool:
    """No American spelling and no imperial unit, in a text of at least a few words."""
    return len(text.split()) >= 3 and not _AMERICAN.search(text) and not _IMPERIAL.search(text)


def to_british(text: str) -> str:
    """British spelling, and every measure in metric units."""
    for pattern, factor, offset, unit in _MEASURED:
        text = pattern.sub(partial(_metric, factor, offset, unit), text)
    text = _IMPERIAL.sub(lambda found: _as(found[0], _METRIC_WORDS.get(found[0].lower(), "°C")), text)
    return _AMERICAN.sub(lambda found: _as(found[0], AMERICAN[found[0].lower()]), text)


def is_formal_korean(text: str) -> bool:
    """Korean, and each sentence ends formally."""
    if not _HANGUL.search(text):
        return False
    pieces = [piece.strip(" \"')\n") for piece in re.split(r"[.!?\n]+", text)]
    said = [piece for piece in pieces if piece]
    return bool(said) and all(_FORMAL_END.search(piece) for piece in said)


def is_code_only(text: str) -> bool:
    """Nothing but code: one fenced block, or lines that all look like code."""
    body = text.strip()
    if not body:
        return False
    fenced = _FENCE.fullmatch(body)
    if fenced is not None:
        return bool(fenced[1].strip())
    return "```" not in body and all(_CODE_LINE.match(line) for line in body.splitlines() if line.strip())


def code_of(text: str) -> str | None:
    """The first fenced block of a reply, without its fence; None where there is none."""
    found = _FENCE.search(text)
    return found[1].strip() or None if found else None


def _metric(factor: float, offset: float, unit: str, found: re.Match[str]) -> str:
    value = (float(found[1].replace(",", "")) + offset) * factor
    shown = f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}".removesuffix(".0")
    return f"{shown} {unit}"


def _as(like: str, word: str) -> str:
    return word.capitalize() if like[:1].isupper() and word[0].isalpha() and word != "°C" else word
