"""The models: which one answers, which are here, which can be fetched, and what each takes on this machine.

Enter does the one thing that makes sense for the chosen row: it lets a model answer that is here, and fetches one that
is not. Nothing here waits for either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app import model_words
from app.models import Choice, Fit, Machine, Place, Running
from app.tui import wording
from app.tui.background import Background
from app.tui.dialogs import LineDialog
from app.tui.ports import ChatService
from app.tui.pulls import Pulls
from store import settings
from store.errors import MynahError

LOOK_SECONDS = 0.25
KEYS = (
    "Enter answers with it, or fetches it · A another address · S stops fetching · "
    "C context · G layers on a GPU · Esc back"
)
_COLOURS = {Fit.LEARNS: "$text-success", Fit.CHATS: "$text-warning", Fit.NOT: "$text-error"}


class OptionalLine(LineDialog):
    """A line that may be left empty."""

    def answer(self, text: str) -> str | None:
        """An empty one is an answer too."""
        return text


class ModelsScreen(ModalScreen[None]):
    """A list of models. ``answering``: whether a reply is being written, which a change would cut off."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+c", "dismiss", "back", key_display="Esc"),
        Binding("a", "address", show=False),
        Binding("s", "stop", show=False),
        Binding("c", "context", show=False),
        Binding("g", "gpu", show=False),
    ]

    def __init__(self, service: ChatService, pulls: Pulls, answering: Callable[[], bool]) -> None:
        super().__init__()
        self._service = service
        self._pulls = pulls
        self._answering = answering
        self._background = Background(self)
        self._choices: list[Choice] = []
        self._machine: Machine | None = None
        self._served: Running | None = None
        self._revision = -1

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet") as sheet:
            sheet.border_title = "Models"
            sheet.border_subtitle = "Esc back"
            yield Static("", classes="explanation machine", markup=False)
            yield OptionList(markup=False, compact=True)
            yield Static("", classes="explanation advice", markup=False)
            yield Static("", classes="fetching", markup=False)
            yield Static(Content.styled(KEYS, wording.MUTED), classes="explanation", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self._look()
        self.set_interval(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Follow a pull, and read the list again once it may have changed."""
        self._tell(".fetching", self._fetching())
        if self._revision != self._pulls.revision:
            self._revision = self._pulls.revision
            self._background.call(self._read, self._show, self._refused)

    def _fetching(self) -> str:
        name, progress = self._pulls.under_way, self._pulls.progress
        if name is None:
            return ""
        return f"{name}  {model_words.pull_line(progress) if progress else 'asking the server…'}"

    def _read(self) -> tuple[Machine, list[Choice], Running]:
        machine = self._machine or self._service.machine()
        return machine, self._service.choices(machine), self._service.running()

    def _show(self, read: tuple[Machine, list[Choice], Running]) -> None:
        self._machine, self._choices, self._served = read
        here = model_words.machine_line(self._machine)
        self._tell(".machine", f"{here}\n{model_words.running_line(self._served, self._machine)}")
        listing = self.query_one(OptionList)
        kept = listing.highlighted or 0
        listing.clear_options()
        listing.add_options([Option(row(choice)) for choice in self._choices])
        listing.highlighted = min(kept, len(self._choices) - 1) if self._choices else None

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        choice = self._choices[event.option_index]
        self._tell(".advice", f"{choice.what}\n{model_words.advice_line(choice)}")

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        choice = self._choices[event.option_index]
        if choice.path is None:
            self._pulls.fetch(choice.pick)
            self._look()
        elif choice.place is Place.IN_USE:
            self._tell(".advice", f"{choice.name} answers already")
        elif self._answering():
            self._tell(".advice", "A reply is being written: another model can answer when it is over")
        else:
            self._pulls.choose(choice.pick)

    def action_address(self) -> None:
        """Fetch a model that has no name here."""
        self.app.push_screen(
            LineDialog(
                "Fetch a model",
                "",
                "An https address of a .gguf file, or OWNER/REPOSITORY/FILE.gguf on the hub.",
            ),
            lambda typed: self._pulls.fetch(typed) if typed else None,
        )

    def action_stop(self) -> None:
        self._pulls.stop()

    def action_context(self) -> None:
        """Ask how much of a conversation the model shall see."""
        if self._served is not None:
            self._ask(
                settings.CONTEXT,
                "Context",
                str(self._served.context),
                "Tokens of a conversation that the model sees. More takes more memory; nothing is the default.",
            )

    def action_gpu(self) -> None:
        """Ask how many layers a GPU shall compute."""
        if self._served is not None:
            layers = self._served.gpu_layers
            self._ask(
                settings.GPU_LAYERS,
                "Layers on a GPU",
                "" if layers is None else str(layers),
                "How many of the model's layers a GPU computes, 0 being none; nothing means all that fit.",
            )

    def _ask(self, key: str, title: str, now: str, explanation: str) -> None:
        if self._answering():
            self._tell(".advice", "A reply is being written: the model can be loaded anew when it is over")
            return

        def change(typed: str | None) -> None:
            if typed is not None and typed != now:
                self._pulls.run_with(key, typed)

        self.app.push_screen(OptionalLine(title, now, explanation), change)

    def _tell(self, where: str, line: str) -> None:
        self.query_one(where, Static).update(Content(line))

    def _refused(self, error: MynahError) -> None:
        self._tell(".advice", str(error))


def row(choice: Choice) -> Content:
    """A model on two lines."""
    place, size, memory, fit, versions = model_words.facts(choice)
    learned = f" · {versions} learned" if versions else ""
    mark = "● " if choice.place is Place.IN_USE else "○ "
    return Content.assemble(
        (mark, "$primary"),
        (choice.name, "bold"),
        "\n",
        (f"  {place} · {size} · {memory} of memory · ", wording.MUTED),
        (fit, _COLOURS[choice.advice.fit]),
        (learned, wording.MUTED),
    )
