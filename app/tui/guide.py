"""Leads through the lesson: offers it once, starts and leaves it, and keeps its line true.

The offer is one sentence on the empty page of a home in which nothing was ever said. Whoever types on instead has
declined it without noticing, and is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable

from app.service import Snapshot, ThreadMessage
from app.tui.background import Background
from app.tui.chat_view import ChatView
from app.tui.lesson import QUESTIONS, Lesson, Part, words
from app.tui.ports import ChatService


class Guide:
    """The lesson of one chat screen. ``key`` tells what a command's key is called."""

    def __init__(
        self, view: ChatView, service: ChatService, background: Background, key: Callable[[str], str]
    ) -> None:
        self._view = view
        self._service = service
        self._background = background
        self._key = key
        self._lesson: Lesson | None = None
        self._suggested = 0

    @property
    def under_way(self) -> bool:
        """Whether the lesson is shown."""
        return self._lesson is not None

    def offer(self) -> None:
        """Mention the lesson on the empty page, the first time that there could be one."""
        self._background.call(self._service.offer_lesson, self._offered, lambda _error: None)

    def _offered(self, due: bool) -> None:
        if due and not self.under_way:
            self._view.transcript.offer_lesson()

    async def begin(self, now: Snapshot | None) -> None:
        """Start in an empty conversation, or leave where one is under way."""
        if self.under_way:
            self.leave()
            return
        if now is None:
            self._view.tell("Mynah is still starting: a moment, please")
            return
        last = now.learning.last
        self._lesson, self._suggested = Lesson(None if last is None else last.id), 0
        await self._view.new()
        self.look(now)

    def leave(self) -> None:
        """End it. What was said and taught stays, and beginning again goes on from there."""
        over = self._lesson is not None and self._view.lesson_line.part is Part.OVER
        self._lesson = None
        self._view.lesson_line.hide()
        if self._view.composer.text in QUESTIONS:
            # Ours, and nobody asked it: what somebody wrote stays.
            self._view.composer.put("")
        if not over:
            self._view.tell("Lesson left. What you taught stays; /lesson takes it up again")

    def left_by_escape(self) -> bool:
        """Whether Esc, with nothing else to end, ends the lesson."""
        if not self.under_way or self._view.turn is not None or self._view.editing:
            return False
        self.leave()
        return True

    def look(self, now: Snapshot | None) -> None:
        """Say what comes next."""
        if self._lesson is None or now is None:
            return
        part = self._lesson.part(now, self._last_reply())
        self._view.lesson_line.show(part, words(part, now, self._key))
        self._suggest(part, len(now.learning.waiting))

    def _last_reply(self) -> ThreadMessage | None:
        thread = self._view.thread
        return thread.messages[-1] if thread and thread.messages and self._view.turn is None else None

    def _suggest(self, part: Part, waiting: int) -> None:
        """Put a question into an empty composer, each once: whoever deletes it wants to ask something else."""
        place = min(waiting, len(QUESTIONS) - 1)
        composer = self._view.composer
        if part is Part.ASK and self._suggested <= place and self._view.turn is None and not composer.text:
            self._suggested = place + 1
            composer.put(QUESTIONS[place])
