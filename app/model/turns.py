"""One message as a model reads it: what the renderer takes, and what knows how calls of functions are written."""

from __future__ import annotations

from dataclasses import dataclass

from store.types import Role


@dataclass(frozen=True)
class Turn:
    """One message as the model sees it. A tool's turn holds what a function found, after the reply that called it."""

    role: Role
    content: str
