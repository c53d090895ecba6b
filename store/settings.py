"""Settings of one home: JSON values by key, with their defaults in one place."""

from __future__ import annotations

import json
from typing import Any, Final

from store.db import Store
from store.errors import UsageError

MODEL: Final = "model"
LEARNING_PAUSED: Final = "learning.paused"
LEARNING_ASKS: Final = "learning.asks"
MIN_UNITS: Final = "learning.min_units"
TEACHER: Final = "learning.teacher"
TEACHER_MODEL: Final = "learning.teacher_model"
TEACHER_HOSTS: Final = "learning.teacher_hosts"
IDLE_LEARN_SECONDS: Final = "learning.idle_seconds"
LEARNING_DEVICE: Final = "learning.device"
PRECISION: Final = "learning.precision"
HOST_IDLE_SECONDS: Final = "host.idle_seconds"
CONTEXT: Final = "host.context"
WARM_CONVERSATIONS: Final = "host.warm_conversations"
WARM_ON_DISK: Final = "host.warm_on_disk"
PINNED: Final = "adapter.pinned"
ADAPTER_STRENGTH: Final = "adapter.strength"
THREADS: Final = "host.threads"
GPU_LAYERS: Final = "host.gpu_layers"
SYSTEM_PROMPT: Final = "chat.system_prompt"
PRIVACY_WORDS: Final = "privacy.words"
KEEP_HISTORY: Final = "consent.history"
FEED_MEMORY: Final = "consent.memory"
TRAIN: Final = "consent.train"
TITLES: Final = "chat.titles"
SUMMARY: Final = "chat.summary"
THEME: Final = "chat.theme"
KEYS: Final = "chat.keys"
LESSON: Final = "chat.lesson"
FROZEN: Final = "control.frozen"
APPROVE_MEMORY: Final = "control.approval.memory"
APPROVE_INSTRUCTION: Final = "control.approval.instruction"
APPROVE_GUARD: Final = "control.approval.guard"
APPROVE_WEIGHTS: Final = "control.approval.weights"
CHANGES_PER_DAY: Final = "control.changes_per_day"
LEARN_MINUTES_PER_DAY: Final = "control.learn_minutes_per_day"
CPU_MINUTES_PER_DAY: Final = "control.cpu_minutes_per_day"

PROCESSOR: Final = "processor"
GPU: Final = "gpu"
"""Where learning computes."""
FLOAT32: Final = "float32"
BFLOAT16: Final = "bfloat16"
FOUR_BIT: Final = "4bit"
"""The frozen weights' form while it does."""

DEFAULTS: Final[dict[str, Any]] = {
    MODEL: None,
    LEARNING_PAUSED: False,
    LEARNING_ASKS: None,
    MIN_UNITS: 4,
    TEACHER: None,
    TEACHER_MODEL: "default",
    TEACHER_HOSTS: [],
    IDLE_LEARN_SECONDS: 120.0,
    LEARNING_DEVICE: PROCESSOR,
    PRECISION: FLOAT32,
    HOST_IDLE_SECONDS: 600.0,
    CONTEXT: 4096,
    WARM_CONVERSATIONS: 4,
    WARM_ON_DISK: False,
    PINNED: None,
    ADAPTER_STRENGTH: 1.0,
    THREADS: None,
    GPU_LAYERS: None,
    SYSTEM_PROMPT: "You are a helpful AI assistant named Mynah.",
    PRIVACY_WORDS: [],
    KEEP_HISTORY: "allow",
    FEED_MEMORY: "allow",
    TRAIN: "allow",
    TITLES: True,
    SUMMARY: False,
    THEME: "dark",
    KEYS: {},
    LESSON: True,
    FROZEN: False,
    APPROVE_MEMORY: "automatic",
    APPROVE_INSTRUCTION: "automatic",
    APPROVE_GUARD: "automatic",
    APPROVE_WEIGHTS: "automatic",
    CHANGES_PER_DAY: 40,
    LEARN_MINUTES_PER_DAY: 240.0,
    CPU_MINUTES_PER_DAY: 240.0,
}


def get(store: Store, key: str) -> Any:
    """The value of a known setting, or its default.

    Raises:
        UsageError: no such setting.
    """
    if key not in DEFAULTS:
        raise UsageError(f"no setting is called {key!r}; known are {', '.join(sorted(DEFAULTS))}")
    row = store.conn.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    return DEFAULTS[key] if row is None else json.loads(row["value"])


def is_file(teacher: str) -> bool:
    """Whether what `TEACHER` names is a file, and not an address."""
    return "://" not in teacher


def put(store: Store, key: str, value: Any) -> None:
    """Change a known setting; ``None`` brings the default back."""
    get(store, key)
    with store.write() as connection:
        if value is None:
            connection.execute("DELETE FROM settings WHERE key = ?", (key,))
        else:
            connection.execute(
                "INSERT INTO settings (key, value) VALUES (?, ?) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, json.dumps(value, ensure_ascii=False)),
            )
