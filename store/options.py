"""The settings an owner may change, each with what it does, what it takes and from when on it holds.

They live in the database rather than in a file: every process of a home sees a change at once, a value is checked
before it is kept, and a backup holds them. What a command of its own looks after (the model, a pin) is shown here
and changed there, because changing it is more than writing a value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from store import settings
from store.addresses import is_loopback
from store.db import Store
from store.errors import NotFound, UsageError


@dataclass(frozen=True)
class Option:
    """One setting. ``read`` makes a value of what was typed, or raises ValueError; ``command`` changes it elsewhere."""

    key: str
    what: str
    takes: str
    holds: str
    read: Callable[[str], Any] | None = None
    command: str | None = None


@dataclass(frozen=True)
class Value:
    """A setting as it stands."""

    option: Option
    value: Any
    default: Any

    @property
    def changed(self) -> bool:
        """Whether it is another one than the default."""
        return bool(self.value != self.default)


AT_ONCE = "at once"
NEXT_HOST = "from the next start of the model host on (`mynah stop` ends it)"
NEXT_RUN = "from the next learning run on"
NEW_ONES = "for conversations that begin from then on (`mynah consent` turns the dials of one)"
_ON, _OFF = ("on", "true", "yes", "1"), ("off", "false", "no", "0")


def _switch(text: str) -> bool:
    if text.lower() in _ON:
        return True
    if text.lower() in _OFF:
        return False
    raise ValueError


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return read


def _number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError
        return value

    return read


def _text(longest: int) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not text.strip() or len(text) > longest or "\0" in text:
            raise ValueError
        return text.strip()

    return read


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _address(text: str) -> str:
    parts = urlsplit(text.strip())
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise ValueError
    # A password in it would lie in the database; without encryption anybody on the way could read along.
    if "@" in parts.netloc or (parts.scheme == "http" and not is_loopback(parts.hostname)):
        raise ValueError
    return text.strip()


def _teacher(text: str) -> str | None:
    """An address, a model's file by its whole path, or None for the model itself."""
    if text.strip().lower() == "base":
        return None
    if not settings.is_file(text):
        return _address(text)
    path = Path(text.strip()).expanduser().resolve()
    if path.suffix != ".gguf" or not path.is_file():
        raise ValueError
    return str(path)


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError
        return text.lower()

    return read


def _keys(text: str) -> dict[str, str]:
    """``name=key`` pairs with blanks between; a command may have several keys, with commas between."""
    chosen = dict(pair.split("=", 1) for pair in text.split())
    if not all(_NAME.fullmatch(name) and _PRESSED.fullmatch(keys) for name, keys in chosen.items()):
        raise ValueError
    return chosen


_NAME = re.compile(r"[a-z-]+")
_PRESSED = re.compile(
    r"(?:(?:ctrl|alt|shift)\+[^\s,]+|f\d{1,2})(?:,(?:(?:ctrl|alt|shift)\+[^\s,]+|f\d{1,2}))*"
)
_DIAL = "allow or deny"
_APPROVAL = "automatic, ask or never"
_AGREES = _one_of("automatic", "ask", "never")


OPTIONS: tuple[Option, ...] = (
    Option(
        settings.SYSTEM_PROMPT,
        "What the model is told before every conversation.",
        "a text of at most 4000 characters",
        NEXT_HOST,
        _text(4000),
    ),
    Option(
        settings.TITLES,
        "Whether the model names new conversations; off, the first line is the title.",
        "on or off",
        AT_ONCE,
        _switch,
    ),
    Option(
        settings.SUMMARY,
        "Whether the model is told in short what a long conversation left out of its window.",
        "on or off",
        AT_ONCE,
        _switch,
    ),
    Option(
        settings.THEME,
        "The colours of the chat; `/theme` in the chat shows them.",
        "dark, light or contrast",
        "from the next start of the chat on",
        _one_of("dark", "light", "contrast"),
    ),
    Option(
        settings.KEYS,
        "Keys of your own for the chat's commands, by the names that are typed behind a slash.",
        "command=key with blanks between, such as story=ctrl+y good=f6,alt+u",
        "from the next start of the chat on",
        _keys,
    ),
    Option(
        settings.LESSON,
        "Whether an empty chat offers the first lesson, which it does once; `/lesson` in the chat starts it any time.",
        "on or off",
        "from the next start of the chat on, where nothing was said yet",
        _switch,
    ),
    Option(
        settings.KEEP_HISTORY,
        "Whether new conversations stay in the history; one that does not is deleted an hour after its last message.",
        _DIAL,
        NEW_ONES,
        _one_of("allow", "deny"),
    ),
    Option(
        settings.FEED_MEMORY,
        "Whether new conversations may be remembered in others.",
        _DIAL,
        NEW_ONES,
        _one_of("allow", "deny"),
    ),
    Option(
        settings.TRAIN,
        "Whether new conversations may be learned from.",
        _DIAL,
        NEW_ONES,
        _one_of("allow", "deny"),
    ),
    Option(
        settings.MIN_UNITS,
        "How many new lessons start a learning run by themselves.",
        "a whole number from 1 to 1000",
        AT_ONCE,
        _whole(1, 1000),
    ),
    Option(
        settings.IDLE_LEARN_SECONDS,
        "Seconds without a question after which a due learning run may begin.",
        "seconds from 0 to 86400",
        AT_ONCE,
        _number(0, 86400),
    ),
    Option(
        settings.LEARNING_DEVICE,
        "Where learning computes; on a GPU it takes at most half of the free memory, and steps aside at each pass.",
        "processor or gpu",
        "from the next learning run on",
        _one_of(settings.PROCESSOR, settings.GPU),
    ),
    Option(
        settings.PRECISION,
        "How the model's own weights are held while learning; fewer bits need less memory, and are not quicker here.",
        "float32, bfloat16 or, on an NVIDIA GPU and with `pip install 'mynah-chat[cuda]'`, 4bit",
        NEXT_RUN,
        _one_of(settings.FLOAT32, settings.BFLOAT16, settings.FOUR_BIT),
    ),
    Option(
        settings.TEACHER,
        "Who writes better replies where you gave a hint: base (the model itself), a stronger one, or a chat endpoint.",
        "base, a .gguf file of a model with the same vocabulary, or an address such as http://127.0.0.1:8080/v1, "
        "beyond this machine https and a host of learning.teacher_hosts",
        NEXT_RUN,
        _teacher,
    ),
    Option(
        settings.TEACHER_MODEL,
        "The name of the teacher's model, where it has several.",
        "a name of at most 200 characters",
        NEXT_RUN,
        _text(200),
    ),
    Option(
        settings.TEACHER_HOSTS,
        "Hosts beyond this machine that a teacher may be on: what you rated with a hint goes there, redacted.",
        "names with commas between",
        NEXT_RUN,
        _words,
    ),
    Option(
        settings.LEARNING_PAUSED,
        "Whether learning runs are held back.",
        "on or off",
        AT_ONCE,
        command="mynah learn pause` and `mynah learn resume",
    ),
    Option(
        settings.LEARNING_ASKS,
        "Why learning stopped by itself, where it did.",
        "a text",
        AT_ONCE,
        command="mynah learn resume",
    ),
    Option(
        settings.PINNED,
        "The version that stays, whatever is learned; one for each model.",
        "an adapter",
        AT_ONCE,
        command="mynah adapters pin",
    ),
    Option(
        settings.MODEL, "The model that answers.", "a name or a file", NEXT_HOST, command="mynah models use"
    ),
    Option(
        settings.CONTEXT,
        "How many tokens of a conversation the model sees; more takes more memory.",
        "a whole number from 512 to 131072",
        NEXT_HOST,
        _whole(512, 131072),
    ),
    Option(
        settings.WARM_CONVERSATIONS,
        "How many conversations are kept computed for each version in use, memory allowing, to go on at once.",
        "a whole number from 3 to 64",
        NEXT_HOST,
        _whole(3, 64),
    ),
    Option(
        settings.WARM_ON_DISK,
        "Whether what was computed of the last conversations stays on the disk, and they open at once the next day.",
        "on or off",
        "from the next end of the model host on",
        _switch,
    ),
    Option(
        settings.ADAPTER_STRENGTH,
        "How strongly what was learned speaks in every version, 0 being the model as it was made.",
        "a number from 0 to 1",
        AT_ONCE,
        _number(0, 1),
    ),
    Option(
        settings.HOST_IDLE_SECONDS,
        "Seconds without need of it after which the model host ends and frees its memory.",
        "seconds from 1 to 604800",
        NEXT_HOST,
        _number(1, 604800),
    ),
    Option(
        settings.THREADS,
        "How many threads the model computes with; measured on this machine unless you say.",
        "a whole number from 1 to 256, of which no more than there are cores are used; unset, it is measured again",
        NEXT_HOST,
        _whole(1, 256),
    ),
    Option(
        settings.GPU_LAYERS,
        "How many of the model's layers a GPU computes, where llama.cpp was built for one; unset, all that fit.",
        "a whole number from 0 to 999, 0 being none",
        NEXT_HOST,
        _whole(0, 999),
    ),
    Option(
        settings.PRIVACY_WORDS,
        "Words of yours that are taken out of everything that is exported or learned.",
        "words with commas between",
        AT_ONCE,
        _words,
    ),
    Option(
        settings.APPROVE_MEMORY,
        "Whether what you say of yourself is remembered by itself, after your word, or never.",
        _APPROVAL,
        AT_ONCE,
        _AGREES,
    ),
    Option(
        settings.APPROVE_INSTRUCTION,
        "The same for standing rules that every reply reads.",
        _APPROVAL,
        AT_ONCE,
        _AGREES,
    ),
    Option(
        settings.APPROVE_GUARD,
        "The same for checks that every reply is put through.",
        _APPROVAL,
        AT_ONCE,
        _AGREES,
    ),
    Option(
        settings.APPROVE_WEIGHTS,
        "The same for learning runs that start by themselves; `mynah learn now` asks nobody.",
        _APPROVAL,
        AT_ONCE,
        _AGREES,
    ),
    Option(
        settings.CHANGES_PER_DAY,
        "How many changes Mynah may make to itself within a day.",
        "a whole number from 0 to 1000",
        AT_ONCE,
        _whole(0, 1000),
    ),
    Option(
        settings.LEARN_MINUTES_PER_DAY,
        "How many minutes learning runs may take within a day before none starts by itself.",
        "minutes from 0 to 1440",
        AT_ONCE,
        _number(0, 1440),
    ),
    Option(
        settings.CPU_MINUTES_PER_DAY,
        "The same in minutes of the processor.",
        "minutes from 0 to 100000",
        AT_ONCE,
        _number(0, 100_000),
    ),
    Option(
        settings.FROZEN,
        "Whether nothing is changed by itself.",
        "on or off",
        AT_ONCE,
        command="mynah freeze",
    ),
)
"""Every setting, in the order in which they are listed."""


def find(key: str) -> Option:
    """A setting by its key.

    Raises:
        NotFound: there is none; the message names near ones.
    """
    for option in OPTIONS:
        if option.key == key:
            return option
    import difflib

    near = difflib.get_close_matches(key, [option.key for option in OPTIONS], n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`mynah config list` shows them"
    raise NotFound(f"no setting is called {key!r}: {hint}")


def value(store: Store, key: str) -> Value:
    """A setting as it stands."""
    option = find(key)
    return Value(option, settings.get(store, key), settings.DEFAULTS[key])


def values(store: Store) -> list[Value]:
    """All settings as they stand."""
    return [value(store, option.key) for option in OPTIONS]


def change(store: Store, key: str, typed: str) -> Value:
    """Give a setting the value that was typed.

    Raises:
        NotFound: there is no such setting.
        UsageError: the value does not fit, or another command changes this one.
    """
    option = find(key)
    if option.read is None:
        raise UsageError(f"{key} is changed with `{option.command}`")
    try:
        wanted = option.read(typed)
    except ValueError:
        shown = typed if len(typed) <= 40 else f"{typed[:39]}…"
        raise UsageError(f"{key} takes {option.takes}, not {shown!r}") from None
    settings.put(store, key, wanted)
    return value(store, key)


def reset(store: Store, key: str) -> Value:
    """Bring a setting's default back.

    Raises:
        NotFound: there is no such setting.
        UsageError: another command changes this one.
    """
    option = find(key)
    if option.read is None:
        raise UsageError(f"{key} is changed with `{option.command}`")
    settings.put(store, key, None)
    return value(store, key)


def shown(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items())
    return value if isinstance(value, str) else json.dumps(value)
