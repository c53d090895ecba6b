"""Finding a message again by its words and by what became of it, in one line of text.

`egg rated:down since:7d` is how people write it in the products they know, and it fits a search box and a command
alike. A filter is a known name with a value; everything else is searched for as it stands, so `http://x` and `a:b`
are words. What a filter says is said of replies, while the words may be in the question: a hit is a message with
the words whose own reply, or which itself, fits the filters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from store import search, textindex
from store.containing import TRIGRAM
from store.db import Store
from store.errors import UsageError
from store.labels import clean_tag
from store.search import Hit
from store.types import Role, Shelf, SignalKind, SignalSource, UnitState, UnitUse


class Rated(StrEnum):
    """The thumb a reply has now."""

    UP = "up"
    DOWN = "down"


class Corrected(StrEnum):
    """Whether the owner wrote a better version."""

    YES = "yes"
    NO = "no"


@dataclass(frozen=True)
class Sought:
    """What to find. ``used`` is a version number; ``since`` and ``before`` are ISO times in UTC."""

    words: str = ""
    rated: Rated | None = None
    corrected: Corrected | None = None
    used: int | None = None
    fate: UnitState | None = None
    tag: str | None = None
    since: str | None = None
    before: str | None = None
    shelf: Shelf = Shelf.ALL

    @property
    def empty(self) -> bool:
        """Whether nothing is sought."""
        return self == Sought()


FILTERS = {
    "rated": "up or down",
    "corrected": "yes or no",
    "used": "a version, as in v3",
    "fate": "queued, used, held_out or refused",
    "tag": "a tag of the conversation",
    "since": "a date as in 2026-11-29, or 7d for seven days",
    "before": "a date as in 2026-11-29, or 7d for seven days",
    "in": "open, archived or all",
}
"""The filters, with what each takes."""

"""Characters from which on the index answers."""

_FILTER = re.compile(rf"(?<!\S)({'|'.join(FILTERS)}):(\S+)", re.IGNORECASE)
_DAYS = re.compile(r"(\d{1,5})d")


def parse(text: str) -> Sought:
    """The words and filters of a line.

    Raises:
        UsageError: a filter has a value it does not know.
    """
    sought = Sought()
    filters = _FILTER.findall(text)
    for name, value in filters:
        sought = _with(sought, name.lower(), value)
    # Without filters the text is left as it is: a line of code may hold several blanks.
    words = " ".join(_FILTER.sub(" ", text).split()) if filters else text.strip()
    return replace(sought, words=words)


def _with(sought: Sought, name: str, value: str) -> Sought:
    try:
        match name:
            case "rated":
                return replace(sought, rated=Rated(value.lower()))
            case "corrected":
                return replace(sought, corrected=Corrected(value.lower()))
            case "used":
                return replace(sought, used=int(value.lower().removeprefix("v")))
            case "fate":
                return replace(sought, fate=UnitState(value.lower().replace("-", "_")))
            case "tag":
                return replace(sought, tag=clean_tag(value))
            case "since":
                return replace(sought, since=moment(value))
            case "before":
                return replace(sought, before=moment(value))
            case _:
                return replace(sought, shelf=Shelf(value.lower()))
    except ValueError:
        raise UsageError(f"{name}: takes {FILTERS[name]}, not {value!r}") from None


def moment(text: str, now: datetime | None = None) -> str:
    """A day as the owner writes it (2026-11-29 begins at local midnight, 7d is seven days ago) as stored times are.

    Raises:
        ValueError: it is neither.
    """
    days = _DAYS.fullmatch(text.strip().lower())
    then = (
        (now or datetime.now(UTC)) - timedelta(days=int(days[1]))
        if days
        else datetime.fromisoformat(text.strip()).astimezone()
    )
    return then.astimezone(UTC).isoformat(timespec="microseconds")


def find(store: Store, sought: Sought, limit: int = 50) -> list[Hit]:
    """The messages that fit, newest first; without words, the replies that do.

    Raises:
        UsageError: nothing is sought.
    """
    if sought.empty:
        raise UsageError("there is nothing to search for: give a word or a filter such as rated:down")
    if sought == Sought(sought.words):
        return search.search(store, sought.words, limit)
    conditions = [_words(sought), *_of_conversation(sought), *_of_message(sought)]
    replies = _of_reply(sought)
    if replies:
        fits = " AND ".join(condition for condition, _ in replies)
        given = [value for _, values in replies for value in values]
        conditions.append((f"EXISTS ({_ITS_REPLY} AND {fits})", [Role.ASSISTANT, *given]))
    return search.hits(
        store,
        " AND ".join(condition for condition, _ in conditions),
        [value for _, values in conditions for value in values],
        sought.words,
        limit,
    )


_Condition = tuple[str, list[object]]


def _words(sought: Sought) -> _Condition:
    """Containing the words, by the trigram index where they are long enough for it."""
    # SQLite ends a text at a NUL, which would leave the quoted string open.
    words = sought.words.replace("\x00", "")
    if not words:
        return "messages.role = ?", [Role.ASSISTANT]
    if len(words) >= TRIGRAM:
        return textindex.condition(textindex.quoted(words))
    return "instr(lower(messages.text), lower(?)) > 0", [words]


def _of_conversation(sought: Sought) -> list[_Condition]:
    found: list[_Condition] = []
    if sought.shelf is not Shelf.ALL:
        found.append((f"(conversations.archived IS NULL) = {int(sought.shelf is Shelf.OPEN)}", []))
    if sought.tag is not None:
        found.append(
            (
                "EXISTS (SELECT 1 FROM tags WHERE conversation = messages.conversation AND tag = ?)",
                [sought.tag],
            )
        )
    return found


def _of_message(sought: Sought) -> list[_Condition]:
    found: list[_Condition] = []
    if sought.since is not None:
        found.append(("messages.created >= ?", [sought.since]))
    if sought.before is not None:
        found.append(("messages.created < ?", [sought.before]))
    return found


_ITS_REPLY = (
    "SELECT 1 FROM messages AS reply WHERE (reply.id = messages.id OR reply.parent = messages.id) "
    "AND reply.role = ?"
)
_RATED = (
    "(SELECT value FROM signals WHERE message = reply.id AND kind = ? AND source = ? "
    "ORDER BY rowid DESC LIMIT 1) = ?"
)
_CORRECTED = "EXISTS (SELECT 1 FROM signals WHERE message = reply.id AND kind = ?)"
_USED = (
    "EXISTS (SELECT 1 FROM units JOIN unit_uses ON unit_uses.unit = units.id "
    "JOIN adapters ON adapters.id = unit_uses.adapter "
    'WHERE units.message = reply.id AND adapters.version = ? AND unit_uses."use" != ?)'
)
_FATE = "EXISTS (SELECT 1 FROM units WHERE message = reply.id AND state = ?)"


def _of_reply(sought: Sought) -> list[_Condition]:
    found: list[_Condition] = []
    if sought.rated is not None:
        thumb = 1.0 if sought.rated is Rated.UP else -1.0
        found.append((_RATED, [SignalKind.THUMB, SignalSource.USER, thumb]))
    if sought.corrected is not None:
        wanted = _CORRECTED if sought.corrected is Corrected.YES else f"NOT {_CORRECTED}"
        found.append((wanted, [SignalKind.CORRECTION]))
    if sought.used is not None:
        found.append((_USED, [sought.used, UnitUse.HELD_OUT]))
    if sought.fate is not None:
        found.append((_FATE, [sought.fate]))
    return found
