"""The conversation on the screen: a window of its newest messages, and the reply that is being written.

A chat that stays open all day grows without end while a terminal shows forty lines, so only ``WINDOW``
messages are mounted, and as many again before the oldest are taken down; earlier ones come when somebody scrolls up
to them. The transcript follows new text only
while its end is in view: whoever reads further up is left in peace.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.service import ThreadMessage
from app.tui import wording
from app.tui.message_views import MessageView as MessageView
from app.tui.message_views import QuestionView as QuestionView
from app.tui.message_views import ReplyView as ReplyView
from store.conversations import Conversation
from store.types import Role

WINDOW = 30
REACH = 300
"""Messages up to which a jump mounts what lies between: 2 s of work at the most."""
FEW = 6
FLASH_SECONDS = 2.0


class Welcome(Static):
    """What an empty conversation shows."""


class Complaint(Static):
    """Why there is no reply, under the question it concerns. Never a traceback."""


class Transcript(VerticalScroll, can_focus=False):
    """Messages top to bottom, with a welcome while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._earlier: list[ThreadMessage] = []
        self._loading = False
        self._latest: Conversation | None = None
        self._lesson_offered = False

    def on_mount(self) -> None:
        self.anchor()

    @property
    def replies(self) -> list[ReplyView]:
        return list(self.query(ReplyView))

    @property
    def messages(self) -> list[MessageView]:
        """Questions and replies, top to bottom."""
        return list(self.query(MessageView))

    @property
    def picked_question(self) -> QuestionView | None:
        """The owner's message that has the focus, else the last one that is stored."""
        focused = self.screen.focused
        if isinstance(focused, QuestionView):
            return focused
        stored = [view for view in self.query(QuestionView) if view.entry is not None]
        return stored[-1] if stored else None

    @property
    def picked(self) -> ReplyView | None:
        """The reply that has the focus, or whose question has it, else the last one."""
        focused, replies = self.screen.focused, self.replies
        if isinstance(focused, ReplyView):
            return focused
        if isinstance(focused, QuestionView) and focused.parent is self:
            below = self.children[self.children.index(focused) + 1 :]
            return next((view for view in below if isinstance(view, ReplyView)), None)
        return replies[-1] if replies else None

    async def show(self, entries: Sequence[ThreadMessage], kept: int = 0) -> None:
        """Show another conversation, or this one along another branch.

        ``kept``: so many messages, from the first one on, are what is shown already. They stay where they are,
        and so does whoever reads them.
        """
        if kept > len(self._earlier):
            await self.stop_complaining()
            await self.remove_children(self.messages[kept - len(self._earlier) :])
            await self.mount_all([_view(entry) for entry in entries[kept:]])
            self.update_entries(entries)
            return
        self._earlier = list(entries[:-WINDOW])
        views = [_view(entry) for entry in entries[-WINDOW:]]
        with self.app.batch_update():
            await self.remove_children()
            if views:
                await self.mount_all([*self._more(), *views])
            else:
                await self.mount(self._welcome())
        self.anchor()

    async def reveal(self, from_end: int) -> bool:
        """Bring a message into view and set it off for a moment; False where it is too far up.

        ``from_end`` counts from the last one, which is 0.
        """
        missing = from_end + 1 - len(self.messages)
        if missing > REACH:
            return False
        if missing > 0:
            take = missing + FEW
            batch, self._earlier = self._earlier[-take:], self._earlier[:-take]
            await self.query(".earlier").remove()
            await self.mount_all([*self._more(), *(_view(entry) for entry in batch)], before=0)
        view = self.messages[-1 - from_end]
        self.release_anchor()
        view.add_class("-found")
        view.set_timer(FLASH_SECONDS, partial(view.remove_class, "-found"))
        self.call_after_refresh(self.scroll_to_widget, view, top=True, animate=False)
        if isinstance(view, ReplyView):
            view.focus(scroll_visible=False)
        return True

    def welcome(self, latest: Conversation | None) -> None:
        """The conversation that an empty page offers to go on with."""
        if latest != self._latest:
            self._latest = latest
            self.guide(None)

    def offer_lesson(self) -> None:
        """Mention the lesson on the empty page, until something is asked."""
        self._lesson_offered = True
        self.guide(None)

    def guide(self, page: Content | None) -> None:
        """Show this on the empty page instead of the welcome; None for the welcome again."""
        for each in self.query(Welcome):
            each.update(page or wording.welcome(self._latest, lesson=self._lesson_offered))

    def _welcome(self) -> Welcome:
        return Welcome(wording.welcome(self._latest, lesson=self._lesson_offered), markup=False)

    async def add_question(self, text: str) -> None:
        """The owner's message, from the moment it was sent."""
        self._lesson_offered = False
        await self.stop_complaining()
        await self.query(Welcome).remove()
        await self._take_down()
        await self.mount(QuestionView(text))
        self.anchor()

    async def _take_down(self) -> None:
        """Whoever sends something is at the end: what is far above it need not stay mounted."""
        views = self.messages
        if len(views) <= 2 * WINDOW or any(view.entry is None for view in views[:-WINDOW]):
            return
        with self.app.batch_update():
            old = views[:-WINDOW]
            self._earlier += [view.entry for view in old if view.entry is not None]
            await self.query(".earlier").remove()
            await self.remove_children(old)
            await self.mount_all(self._more(), before=0)

    async def add_reply(self, text: str = "") -> ReplyView:
        """An empty reply, or one that has come as far as ``text``."""
        view = ReplyView(None, text)
        await self.mount(view)
        return view

    async def take_back(self, view: ReplyView | None, keep_question: bool = False) -> None:
        """Take away a reply that never came, and the question above it where that was not saved either."""
        if view is None or view.parent is not self:
            return
        place = self.children.index(view)
        above = self.children[place - 1] if place and not keep_question else None
        await view.remove()
        if isinstance(above, QuestionView):
            await above.remove()
        if not self.query("QuestionView, ReplyView, Welcome"):
            await self.mount(self._welcome())

    async def drop_from(self, view: MessageView) -> None:
        """Take away a message and what follows it, for another in its place."""
        await self.remove_children(self.children[self.children.index(view) :])

    async def complain(self, line: str) -> None:
        """Say why there is no reply."""
        await self.stop_complaining()
        await self.mount(Complaint(Content(line), markup=False))
        self.anchor()

    async def stop_complaining(self) -> None:
        """The reason is gone."""
        await self.query(Complaint).remove()

    def update_entries(self, entries: Sequence[ThreadMessage]) -> None:
        """Bring the meta lines up to date, without touching a text."""
        known = {entry.message.id: entry for entry in entries}
        for view in self.messages:
            if view.entry is not None and view.entry.message.id in known:
                view.refresh_entry(known[view.entry.message.id])
        self._name_questions(entries)

    def _name_questions(self, entries: Sequence[ThreadMessage]) -> None:
        """A question that was sent just now learns what it is stored as, so that it can be edited."""
        asked = [entry for entry in entries if entry.message.role is Role.USER]
        for view, entry in zip(reversed(list(self.query(QuestionView))), reversed(asked), strict=False):
            if view.entry is None and view.text == entry.message.text:
                view.refresh_entry(entry)

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        if new <= 0 < old and self._earlier and not self._loading:
            self.call_later(self._show_earlier)

    async def _show_earlier(self) -> None:
        """Mount the messages before the window, keeping in place what was being read."""
        if self._loading or not self._earlier:
            return
        self._loading = True
        batch, self._earlier = self._earlier[-WINDOW:], self._earlier[:-WINDOW]
        height = self.virtual_size.height
        await self.query(".earlier").remove()
        await self.mount_all([*self._more(), *(_view(entry) for entry in batch)], before=0)

        def stay() -> None:
            self.scroll_to(y=self.scroll_y + self.virtual_size.height - height, animate=False)
            self._loading = False

        self.call_after_refresh(stay)

    def _more(self) -> list[Static]:
        if not self._earlier:
            return []
        return [Static(f"{len(self._earlier)} earlier messages · scroll up", classes="earlier", markup=False)]


def _view(entry: ThreadMessage) -> QuestionView | ReplyView:
    if entry.message.role is Role.ASSISTANT:
        return ReplyView(entry)
    return QuestionView(entry.message.text, entry)
