"""Redaction: what must not be trained on or exported is replaced by typed placeholders.

Rules, not a model: they are explainable, take microseconds, and are the same on every machine, so that a unit that
is learned again after something else was forgotten is learned from the same text. They do not know names, street
addresses or anything else that needs understanding; for those the owner has a list of words. Text is never logged
here, and no error message holds any.
"""

from __future__ import annotations

from store.redaction.placeholders import Finding, Kind, Placeholders
from store.redaction.redactor import Redacted, Redactor, contains_secret
from store.redaction.version import REDACTION_VERSION

__all__ = [
    "REDACTION_VERSION",
    "Finding",
    "Kind",
    "Placeholders",
    "Redacted",
    "Redactor",
    "contains_secret",
]
