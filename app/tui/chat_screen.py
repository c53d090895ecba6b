"""The chat screen: the conversation beside the list of conversations, under one set of keys.

It only connects: the view knows the conversation, the sidebar the list, `Teaching` the commands that concern
learning, `Sorting` those that concern whole conversations, and `Watch` what host and learner do. The composer keeps
the focus; nothing that happens by itself takes it away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import TextArea

from app.service import Snapshot
from app.tui import wording
from app.tui.background import Background
from app.tui.chat_view import ChatView
from app.tui.choice_bar import Choice, ChoiceBar
from app.tui.copying import Copying
from app.tui.dialogs import PathDialog
from app.tui.first_run import no_model
from app.tui.guide import Guide
from app.tui.key_line import Key, KeyLine
from app.tui.keys import CHAT, CONVERSATION, STOP, Command, chosen
from app.tui.own_strength import OwnStrength
from app.tui.palette import THEMES, ThemeChosen
from app.tui.ports import ChatService
from app.tui.pulls import Pulls
from app.tui.remembering import Remembering
from app.tui.sidebar import Deed, Sidebar
from app.tui.slash import CommandComposer
from app.tui.sorting import OpenConversationActions, Sorting
from app.tui.teaching import Teaching
from app.tui.titles import Titles
from app.tui.transcript import ReplyView
from app.tui.watch import HostFailed, HostReady, HostState, NotSeen, Seen, Watch
from store.adapters import Serving
from store.conversations import Conversation
from store.errors import ModelFileError, MynahError
from store.search import Hit
from store.types import SignalKind

T = TypeVar("T")
WIDE = 100
SLIM = 60


class ChatScreen(OpenConversationActions, Screen[None]):
    """One conversation at a time, and everything that can be done about it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop", show=False),
        *(command.binding for command in CHAT),
    ]
    AUTO_FOCUS = "Composer"

    def __init__(self, service: ChatService, conversation: str | None = None) -> None:
        super().__init__()
        self._service = service
        self._background = Background(self)
        self._watch = Watch(service, self)
        self._snapshot: Snapshot | None = None
        self._model: str | None = None
        self.commands = chosen((*CHAT, *CONVERSATION), service.preferences().keys)
        self._view = ChatView(service, self._background, lambda: self.commands)
        self._view.conversation = conversation
        self._copying = Copying(self, self._background)
        self._teaching = Teaching(self, service, self._background, self._view.reload, self._chosen)
        self._sorting = Sorting(self, service, self._background, self._list, self._gone)
        self._strength = OwnStrength(self, service, self._background, lambda: self._view.conversation)
        self._pulls = Pulls(self, service, self._background, self._model_changed)
        self._remembering = Remembering(self, service, self._background, self._key_of("unremember"))
        self._guide = Guide(self._view, service, self._background, self._first_key_of)
        self._titles = Titles(service, self._background, self._list, self._consider_title)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Sidebar()
            yield self._view
        yield KeyLine(self._keys)

    def on_mount(self) -> None:
        self._sidebar.display = self.app.size.width >= WIDE
        self._list()
        self.set_interval(0.5, self._tick)
        self.call_after_refresh(self._watch.begin)

    def on_unmount(self) -> None:
        self._watch.end()
        self._pulls.stop()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < WIDE, "-narrow")
        self.set_class(event.size.width < SLIM, "-slim")

    @property
    def _keys(self) -> list[Key]:
        """Esc comes first while there is something to stop."""
        return [*([STOP] if self._view.turn else []), *(each.key for each in self.commands[: len(CHAT)])]

    @property
    def _sidebar(self) -> Sidebar:
        return self.query_one(Sidebar)

    # What goes on by itself

    @on(Seen)
    def _seen(self, event: Seen) -> None:
        before, now = self._snapshot, event.snapshot
        self._snapshot = now
        if now.host is not None:
            self._watch.state = HostState.READY
            self._model = wording.model_name(str(now.host.get("model", "")))
        elif self._watch.state is HostState.READY:
            self._watch.state = HostState.ASLEEP
            if now.learning.run is not None:
                # It never goes to sleep over a run, so it died; and nobody else looks after the learner.
                self._tell("The model host went away while it learned. It is started again; the run goes on.")
                self._watch.wake_host()
        if before is not None:
            self._announce(before, now)
            if before.data_version != now.data_version:
                self._view.reload()
                self._list()
        self._tick()

    def _announce(self, before: Snapshot, now: Snapshot) -> None:
        """Say once what happened between two looks. A toast: it neither takes the focus nor a key."""
        if before.serving.activation != now.serving.activation:
            self.notify(wording.went_live(now.serving), timeout=8, markup=False)
        if now.learning.asks is not None and now.learning.asks != before.learning.asks:
            self.notify(wording.asks(now.learning.asks), timeout=16, markup=False)
        last = now.learning.last
        if last is not None and (before.learning.last is None or before.learning.last.id != last.id):
            line = wording.run_ended(last)
            if line is not None:
                self.notify(line, timeout=8, markup=False)

    @on(NotSeen)
    def _not_seen(self, event: NotSeen) -> None:
        self._view.status.tell(None, str(event.error))

    @on(HostReady)
    def _host_ready(self) -> None:
        self._watch.state = HostState.READY
        self._view.transcript.guide(None)
        self._guide.offer()
        self._tick()

    @on(HostFailed)
    async def _host_failed(self, event: HostFailed) -> None:
        self._watch.state = HostState.FAILED
        if isinstance(event.error, ModelFileError):
            self._view.transcript.guide(no_model())
        await self._view.transcript.complain(f"{event.error}. ^R tries again.")
        self._tick()

    @on(TextArea.Changed)
    def _typing(self) -> None:
        """Whoever begins to write will want an answer: a host that went to sleep is woken meanwhile."""
        if self._watch.state is HostState.ASLEEP and self._snapshot is not None:
            self._watch.wake_host()

    @on(ChatView.Answering)
    def _answering(self) -> None:
        self._watch.state = HostState.READY

    @on(ChatView.Answered)
    def _answered(self, event: ChatView.Answered) -> None:
        self._remembering.consider(event.message, event.notes)

    @on(ChatView.HostLost)
    def _host_lost(self) -> None:
        self._watch.wake_host()

    @on(ChatView.Asked)
    def _asked(self) -> None:
        self._titles.stand_aside()

    @on(ChatView.Changed)
    def _changed(self) -> None:
        self._list()
        self._consider_title()
        self.query_one(KeyLine).show(self._keys)

    def _consider_title(self) -> None:
        if not self._view.answering:
            self._titles.consider(self._view.conversation)

    def _tick(self) -> None:
        self._view.tick()
        self._view.status.tell(self._snapshot, self._watch.describe(self._model))
        self._guide.look(self._snapshot)

    # Commands

    def action_stop(self) -> None:
        if not self._guide.left_by_escape():
            self._view.stop()

    async def action_lesson(self) -> None:
        await self._guide.begin(self._snapshot)

    def action_copy_text(self) -> None:
        """What Textual has on Ctrl+C, wherever the focus is."""
        self._view.interrupt()

    async def action_new_chat(self) -> None:
        await self._view.new()
        self._list()

    async def action_regenerate(self) -> None:
        if self._watch.state is HostState.FAILED:
            await self._view.transcript.stop_complaining()
            self._watch.wake_host()
        if not await self._view.answer_again():
            self._tick()

    def action_rate_up(self) -> None:
        self._with_reply(self._teaching.good)

    def action_rate_down(self) -> None:
        self._with_reply(self._teaching.bad)

    def action_correct(self) -> None:
        self._with_reply(self._teaching.correct)

    def action_copy_reply(self) -> None:
        self._with_reply(self._copy)

    def _copy(self, view: ReplyView) -> None:
        self._copying.reply(view.text)
        if view.entry is not None:
            message = view.entry.message.id
            self._call(lambda: self._service.note(message, SignalKind.COPY), lambda _: None)

    def action_copy_code(self, wanted: str = "") -> None:
        view = self._view.transcript.picked
        if view is None or not self._copying.block(view.text, wanted):
            self._tell("There is no such code block in this reply")

    def action_attach(self, path: str = "") -> None:
        if path:
            self._view.attach(path)
            return
        self.app.push_screen(
            PathDialog(
                "Attach a text file", "", "Its path; Tab completes. It goes into the message as a quotation."
            ),
            lambda typed: self._view.attach(typed) if typed else None,
        )

    def action_palette(self) -> None:
        self.app.action_command_palette()

    def action_theme(self, name: str = "") -> None:
        if name:
            self.app.post_message(ThemeChosen(name))
            return
        names = [
            Choice(str(place), each, partial(self.action_theme, each)) for place, each in enumerate(THEMES, 1)
        ]
        self.query_one(ChoiceBar).ask("Which colours?", names)

    def action_strength(self, typed: str = "") -> None:
        self._strength.choose(typed)

    def action_base(self) -> None:
        self._strength.base()

    @on(CommandComposer.Given)
    async def _given(self, event: CommandComposer.Given) -> None:
        event.stop()
        await self.perform(event.command, event.argument)

    async def perform(self, command: Command, argument: str = "") -> None:
        """Do what a command says, typed or picked from the palette."""
        name = command.action.rpartition(".")[2]
        for place in (self._view, self, self.app):
            act = getattr(place, f"action_{name}", None)
            if act is not None:
                done = act(*([argument] if argument and command.argument else []))
                if isawaitable(done):
                    await done
                return

    def action_known(self) -> None:
        from app.tui.known_screen import KnownScreen

        self.app.push_screen(KnownScreen(self._service))

    def action_unremember(self) -> None:
        self._remembering.undo()

    def _key_of(self, name: str) -> str:
        return next(each.shown for each in self.commands if each.name == name)

    def _first_key_of(self, name: str) -> str:
        return self._key_of(name).partition(",")[0]

    def action_story(self) -> None:
        self._with_reply(self._teaching.story)

    def action_learn_now(self) -> None:
        self._teaching.learn_now()

    def action_rollback(self) -> None:
        self._teaching.rollback()

    def action_versions(self) -> None:
        from app.tui.adapters_screen import AdaptersScreen

        self.app.push_screen(AdaptersScreen(self._service, self._chosen))

    def action_conversations(self) -> None:
        if self._sidebar.has_focus_within:
            self._sidebar_left()
            return
        self._sidebar.display = True
        self._list()
        self._sidebar.focus_list()

    def action_find(self) -> None:
        from app.tui.find_screen import FindScreen

        def go(hit: Hit | None) -> None:
            if hit is not None:
                self._view.jump(hit.conversation, hit.message)

        self.app.push_screen(FindScreen(self._service), go)

    def action_self_view(self) -> None:
        from app.tui.self_screen import SelfScreen

        self.app.push_screen(SelfScreen(self._service))

    def action_incognito(self) -> None:
        from app.tui.incognito_screen import IncognitoScreen

        self.app.push_screen(IncognitoScreen(self._service))

    def action_models(self) -> None:
        from app.tui.models_screen import ModelsScreen

        self.app.push_screen(ModelsScreen(self._service, self._pulls, lambda: self._view.answering))

    def _model_changed(self) -> None:
        """Another model answers from now on; its host is started at once, and what is shown is its own."""
        self._watch.state = HostState.ASLEEP
        self._watch.wake_host()
        self._view.reload()
        self._tick()

    def action_quit(self) -> None:
        self.app.exit()

    def _with_reply(self, act: Callable[[ReplyView], None]) -> None:
        view = self._view.transcript.picked
        if view is None:
            self._tell("There is no reply yet")
        elif view.entry is None:
            self._tell("The reply is still being written. Esc stops it.")
        else:
            act(view)

    def _chosen(self, serving: Serving) -> None:
        """The owner chose what answers: the next look must not announce it as news."""
        if self._snapshot is not None:
            self._snapshot = replace(self._snapshot, serving=serving)
        self._tick()

    # The sidebar

    @on(Sidebar.Left)
    def _sidebar_left(self) -> None:
        if self.size.width < WIDE:
            self._sidebar.display = False
        self._view.composer.focus()

    @on(Sidebar.Opened)
    def _open(self, event: Sidebar.Opened) -> None:
        self._sidebar_left()
        if event.message is None:
            self._view.open(event.conversation)
        else:
            self._view.jump(event.conversation, event.message)

    @on(Sidebar.Sought)
    def _find(self, event: Sidebar.Sought) -> None:
        if event.words:
            self._background.call(
                lambda: self._service.find(event.words),
                self._sidebar.show_found,
                lambda error: self._sidebar.say(str(error)),
            )
        else:
            self._sidebar.show_found(None)

    @on(Sidebar.Wanted)
    def _wanted(self, event: Sidebar.Wanted) -> None:
        found = self._sidebar.conversation(event.conversation)
        if found is not None:
            self._sorting.do(event.deed, found)

    def sort_open(self, deed: Deed) -> None:
        """What the list's keys do, to the conversation that is open."""
        found = self._sidebar.conversation(self._view.conversation or "")
        if found is None:
            self._tell("There is no conversation yet")
        else:
            self._sorting.do(deed, found)

    def _gone(self, conversation: str) -> None:
        if conversation == self._view.conversation:
            self.call_later(self._view.new)

    def _list(self) -> None:
        self._call(lambda: (self._service.conversations(), self._service.archived()), self._listed)

    def _listed(self, listed: tuple[list[Conversation], list[Conversation]]) -> None:
        conversations, archived = listed
        self._sidebar.show(conversations, archived)
        self._sidebar.mark(self._view.conversation, self._view.busy)
        self._view.transcript.welcome(conversations[0] if conversations else None)

    def _call(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._background.call(work, then, self._refused)

    def _refused(self, error: MynahError) -> None:
        self.notify(str(error), severity="warning", markup=False)

    def _tell(self, line: str) -> None:
        self.notify(line, timeout=3, markup=False)
