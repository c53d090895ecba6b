"""Imperial measures in metric ones, number and unit together: a number is only right with the unit it was said in.

A measure without a number ("a few miles away") is left as it is, since nobody knows what it would be in kilometres, and
so are pounds that are money, and code. Factors are those of the international yard and pound of 1959; the gallon is the
American one, as the models that say it mean that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.harness.sentences import outside_code, prose

_WORDS = {
    name: float(value)
    for value, name in enumerate("one two three four five six seven eight nine ten eleven twelve".split(), 1)
} | {"a": 1.0, "an": 1.0}
_DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_COUNTED = "|".join(name for name in _WORDS if len(name) > 2)
_MONEY = re.compile(r"\b(?:costs?|prices?|pays?|paid|worth|earns?|spends?|salary|sterling)\b", re.IGNORECASE)
_NEAR = 60
"""Characters around a measure in which it can be seen that it is money."""
_INLINE = re.compile(r"(`[^`\n]*`)")


@dataclass(frozen=True)
class _Unit:
    """How a unit is written, what it is in metric units, and how many of those one is, from ``zero`` on."""

    pattern: re.Pattern[str]
    metric: str
    factor: float
    zero: float = 0.0

    def found_in(self, text: str) -> Iterator[re.Match[str]]:
        for found in self.pattern.finditer(text):
            around = text[max(0, found.start() - _NEAR) : found.end() + _NEAR]
            if self.metric != "kg" or not _MONEY.search(around):
                yield found

    def turned(self, text: str) -> str:
        made, last = [], 0
        for found in self.found_in(text):
            values = [(_value(each) - self.zero) * self.factor for each in found.groups() if each]
            made += [text[last : found.start()], f"{' to '.join(map(_said, values))} {self.metric}"]
            last = found.end()
        return "".join((*made, text[last:]))


def _unit(names: str, metric: str, factor: float, zero: float = 0.0, one: str = "an?") -> _Unit:
    """``one``: the articles that count it; a foot and a yard may be something else."""
    number = rf"(?<![\w.,])({_DIGITS}|{_COUNTED}{'|' + one if one else ''})"
    pattern = rf"{number}(?:\s*(?:-|–|to|or)\s*{number})?[\s-]?(?:{names})(?!\w)"
    return _Unit(re.compile(pattern, re.IGNORECASE), metric, factor, zero)


_UNITS = (
    _unit(r"°\s?F|degrees?\s+(?:Fahrenheit|F)", "°C", 1 / 1.8, 32.0),
    _unit(r"miles?\s+(?:per|an)\s+hour|mph", "km/h", 1.609344),
    _unit(r"square\s+(?:feet|foot)|sq\.?\s?ft", "m²", 0.09290304),
    _unit(r"miles?", "km", 1.609344),
    _unit(r"yards?|yd", "m", 0.9144, one=""),
    _unit(r"feet|foot|ft", "m", 0.3048, one=""),
    _unit(r"inch(?:es)?", "cm", 2.54),
    _unit(r"pounds?|lbs?", "kg", 0.45359237),
    _unit(r"ounces?|oz", "g", 28.349523),
    _unit(r"gallons?|gal", "l", 3.785412),
)


def imperial(text: str) -> list[str]:
    """The imperial measures of a text, each once."""
    said = _INLINE.sub("", prose(text))
    return list(dict.fromkeys(found[0] for unit in _UNITS for found in unit.found_in(said)))


def metric(text: str) -> str:
    """A text whose measures are metric."""
    return outside_code(text, _turned)


def _turned(text: str) -> str:
    pieces = _INLINE.split(text)
    for place in range(0, len(pieces), 2):
        for unit in _UNITS:
            pieces[place] = unit.turned(pieces[place])
    return "".join(pieces)


def _value(number: str) -> float:
    word = _WORDS.get(number.lower())
    return float(number.replace(",", "")) if word is None else word


def _said(value: float) -> str:
    """As exact as an everyday measure: whole from ten on, else one decimal."""
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}".removesuffix(".0")
