"""What was typed and not sent, kept per conversation: in memory at once, in the store when the typing pauses.

A text that took ten minutes to write must survive a closed window; one that is written incognito must not. So the
store is written only where ``kept`` says so, and the memory of this program is the whole of the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.tui.background import Background
from app.tui.ports import ChatService
from store.errors import MynahError

PAUSE = 0.8
_logger = logging.getLogger(__name__)


class Drafts:
    """The drafts of one chat."""

    def __init__(self, service: ChatService, background: Background, kept: Callable[[], bool]) -> None:
        self._service = service
        self._background = background
        self._kept = kept
        self._texts: dict[str | None, str] = {}

    def known(self, conversation: str | None) -> str | None:
        """The draft as this chat knows it; None for one it has not looked at."""
        return self._texts.get(conversation)

    def read(self, conversation: str | None, then: Callable[[str], None]) -> None:
        """Get a draft from the store, unless something was typed here meanwhile."""

        def found(text: str) -> None:
            if self._texts.setdefault(conversation, text) == text:
                then(text)

        self._background.call(lambda: self._service.draft(conversation), found, _not_kept)

    def keep(self, conversation: str | None, text: str) -> None:
        """Take this for the draft from now on."""
        before = self._texts.get(conversation)
        self._texts[conversation] = text
        if text != (before or "") and self._kept():
            self._background.call(
                lambda: self._service.keep_draft(conversation, text), lambda _: None, _not_kept
            )

    def keep_now(self, conversation: str | None, text: str) -> None:
        """The last word before the chat closes, without the thread that may not get to it any more."""
        if self._kept() and text != self._texts.get(conversation):
            try:
                self._service.keep_draft(conversation, text)
            except MynahError as error:
                _not_kept(error)


def _not_kept(error: MynahError) -> None:
    # A draft is a courtesy: that it could not be kept must not interrupt the writing.
    _logger.warning("a draft could not be kept: %s", error)
