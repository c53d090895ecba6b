"""A home with its service, and what a person does to it: the same whether a host answers or nobody but the test."""

from __future__ import annotations

from pathlib import Path

from app.service import Service
from store import settings
from store.home import Home
from tests.benchmarks.personas.plan import Method


class Owned:
    """One home of one trial."""

    def __init__(self, root: Path, method: Method, model: str | None) -> None:
        self._home = Home(root).open()
        self._method = method
        self._service = Service(self._home)
        if model is not None:
            self._service.use_model(model)

    def rate(self, message: str, value: int, note: str | None) -> None:
        """A thumb."""
        self._service.rate(message, value, note=note)

    def correct(self, message: str, text: str) -> None:
        """The person's own version."""
        self._service.correct(message, text)

    def _tell(self, rule: str) -> None:
        """Put a rule into what the model is told before every conversation."""
        usual = settings.DEFAULTS[settings.SYSTEM_PROMPT]
        settings.put(self._service.store, settings.SYSTEM_PROMPT, f"{usual} {rule}")
