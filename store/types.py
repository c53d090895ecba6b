"""The words the whole project shares, as enums: a status that is a boolean today is a bug tomorrow.

Values are stored as text, so they are part of the schema: rename one only with a migration.
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class MessageStatus(StrEnum):
    """How far a message got. User messages are complete when they are saved."""

    GENERATING = "generating"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class ErrorClass(StrEnum):
    """Infrastructure failures. None of them says anything about the model's quality; unknown counts here too."""

    HOST_DOWN = "host_down"
    LOAD_FAILED = "load_failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    CONTEXT_OVERFLOW = "context_overflow"
    DISK_FULL = "disk_full"
    UNKNOWN = "unknown"


class Consent(StrEnum):
    """One dial of a conversation."""

    ALLOW = "allow"
    DENY = "deny"


class Dial(StrEnum):
    """What the owner decides of a conversation: kept in history, may feed memory, may be trained on."""

    HISTORY = "history"
    MEMORY = "memory"
    TRAIN = "train"


class Shelf(StrEnum):
    """Which conversations are looked through."""

    OPEN = "open"
    ARCHIVED = "archived"
    ALL = "all"


class SignalKind(StrEnum):
    """What happened to a reply after it was given."""

    THUMB = "thumb"
    CORRECTION = "correction"
    REQUERY = "requery"
    THANKS = "thanks"
    LESSER = "lesser"
    HINT = "hint"
    REGENERATE = "regenerate"
    COPY = "copy"
    STOP = "stop"


class SignalSource(StrEnum):
    """Who says so, in falling order of trust."""

    USER = "user"
    RULE = "rule"
    JUDGE = "judge"


class UnitKind(StrEnum):
    """The strongest signal a learning unit rests on."""

    CORRECTION = "correction"
    THUMB_UP = "thumb_up"
    THUMB_DOWN = "thumb_down"
    REQUERY = "requery"
    THANKS = "thanks"
    LESSER = "lesser"

    @property
    def compares(self) -> bool:
        """Whether it says no more than that another answer to the same question was preferred."""
        return self is UnitKind.LESSER

    @property
    def approves(self) -> bool:
        """Whether the reply was good as it was."""
        return self in (UnitKind.THUMB_UP, UnitKind.THANKS)


class UnitState(StrEnum):
    """What became of a learning unit."""

    QUEUED = "queued"
    USED = "used"
    HELD_OUT = "held_out"
    REFUSED = "refused"


class UnitUse(StrEnum):
    """How one adapter's run used a unit."""

    TRAINED = "trained"
    REPLAYED = "replayed"
    HELD_OUT = "held_out"


class AdapterState(StrEnum):
    """The life of an adapter. Exactly one adapter per base is active, or none (then the base serves)."""

    CANDIDATE = "candidate"
    ACTIVE = "active"
    RETIRED = "retired"
    REJECTED = "rejected"
    TAINTED = "tainted"
    DELETED = "deleted"


class RunState(StrEnum):
    """Where a learning run stands."""

    QUEUED = "queued"
    JUDGING = "judging"
    PREPARING = "preparing"
    TRAINING = "training"
    EXPORTING = "exporting"
    GATING = "gating"
    PUBLISHING = "publishing"
    DONE = "done"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        """Whether nothing will happen to this run any more."""
        return self in (RunState.DONE, RunState.FAILED)


class RunOutcome(StrEnum):
    """What a finished run came to."""

    PROMOTED = "promoted"
    REJECTED = "rejected"
    NOTHING_TO_LEARN = "nothing-to-learn"
    FAILED = "failed"


class Trigger(StrEnum):
    """Why a run was asked for."""

    MANUAL = "manual"
    ENOUGH_UNITS = "enough-units"
    IDLE = "idle"
    FORGETTING = "forgetting"


class ForgetState(StrEnum):
    """How far a request to forget got; each state is entered only when all before it holds."""

    REQUESTED = "requested"
    SERVING_CLEAN = "serving_clean"
    RETRAINED = "retrained"
    PURGED = "purged"


class Scope(StrEnum):
    """What a request to forget is about."""

    MESSAGE = "message"
    CONVERSATION = "conversation"
    ADAPTER = "adapter"
    MEMORY = "memory"
    ALL = "all"


class ItemKind(StrEnum):
    """What an item does: it is told to the model as data, told to it as a rule, or checked in code."""

    MEMORY = "memory"
    INSTRUCTION = "instruction"
    GUARD = "guard"


class ItemState(StrEnum):
    """Where an item stands. Only active ones reach a reply; of a forgotten one no word is left."""

    PROPOSED = "proposed"
    ACTIVE = "active"
    OFF = "off"
    RETIRED = "retired"
    FORGOTTEN = "forgotten"


class Actor(StrEnum):
    """Who changed what is served."""

    GATE = "gate"
    OWNER = "owner"
    HOST = "host"
    WATCH = "watch"


class EventKind(StrEnum):
    """One step of a conversation, by what it was."""

    OWNER_MESSAGE = "owner_message"
    GIVEN_MESSAGE = "given_message"
    MODEL_CALL = "model_call"
    TOOL_CALL = "tool_call"
    MEMORY_READ = "memory_read"
    MEMORY_WRITE = "memory_write"
    GUARD_VERDICT = "guard_verdict"
    REACTION = "reaction"


class ReplayClass(StrEnum):
    """What running a step again would show: the same bits, about the same, or nothing."""

    DETERMINISTIC = "deterministic"
    APPROXIMATE = "approximate"
    NOT_REPLAYABLE = "not_replayable"
