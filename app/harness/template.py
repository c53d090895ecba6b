"""What a guard's template is: named parameters with their kinds, a check and a repair, both pure functions.

Parameters are checked when a guard is made, so that a check never meets a value it does not expect: it runs on every
reply, and must not be what fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from store.errors import UsageError

Parameters = Mapping[str, Any]
Read = Callable[[Any], Any]


def nothing(_text: str, _parameters: Parameters) -> str | None:
    """The repair of what cannot be repaired: the reply has to be made again."""
    return None


@dataclass(frozen=True)
class Parameter:
    """One parameter. ``read`` makes its value of what was given, or raises ValueError; ``takes`` says what that is."""

    takes: str
    read: Read
    required: bool = True


@dataclass(frozen=True)
class Template:
    """One kind of guard: ``check`` says what is wrong in words, ``repair`` gives a reply that is right; or None."""

    name: str
    what: str
    parameters: Mapping[str, Parameter]
    check: Callable[[str, Parameters], str | None]
    repair: Callable[[str, Parameters], str | None] = nothing
    some_of: tuple[str, ...] = field(default=())
    """Parameters of which at least one must be given."""

    def checked(self, given: Parameters) -> dict[str, Any]:
        """The parameters as the check takes them.

        Raises:
            UsageError: one is missing, unknown, or of the wrong kind.
        """
        for name in given:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise UsageError(f"the guard {self.name} has no parameter {name!r}; it takes {known}")
        values: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if name not in given:
                if parameter.required:
                    raise UsageError(f"the guard {self.name} needs {name}: {parameter.takes}")
                continue
            try:
                values[name] = parameter.read(given[name])
            except (ValueError, TypeError) as error:
                reason = str(error) or f"{given[name]!r} is not {parameter.takes}"
                raise UsageError(f"{name} of the guard {self.name}: {reason}") from None
        if self.some_of and not any(name in values for name in self.some_of):
            raise UsageError(f"the guard {self.name} needs one of {', '.join(self.some_of)}")
        return values


def whole(value: Any) -> int:
    """A whole number from 1 on."""
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number <= 100_000:
        raise ValueError(f"{value!r} is no whole number between 1 and 100000")
    return number


def words(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip() or len(value) > 500:
        raise ValueError("it must be a text of 1 to 500 characters")
    return value


def phrases(value: Any) -> list[str]:
    """One text or several."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not given or len(given) > 50:
        raise ValueError("it must be a text or a list of 1 to 50 of them")
    return [words(each) for each in given]


def one_of(*choices: str) -> Read:
    """One of some words."""

    def read(value: Any) -> str:
        chosen = str(value).lower()
        if chosen not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}")
        return chosen

    return read
