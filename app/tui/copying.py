"""Copying a reply, or one code block of it, and saying whether it arrived.

The reply is copied at once; where it holds code, a line offers its blocks one key each. Nothing is said that is not
known: a desktop's clipboard and tmux's can be read back, a terminal that was handed a text over OSC 52 never answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.screen import Screen

from app.tui.background import Background
from app.tui.choice_bar import Choice, ChoiceBar
from app.tui.clipboard import Outcome, copy_and_check
from app.tui.fences import CodeBlock, code_blocks

MOST_BLOCKS = 9


class Copying:
    """Copies texts of one chat screen."""

    def __init__(self, screen: Screen[None], background: Background) -> None:
        self._screen = screen
        self._background = background

    def reply(self, text: str) -> None:
        """Copy a whole reply, and offer its code blocks."""
        self.text(text, "Reply")
        blocks = code_blocks(text)[:MOST_BLOCKS]
        if blocks:
            choices = [
                Choice(str(number), _label(block), partial(self.text, block.code, "Code"))
                for number, block in enumerate(blocks, 1)
            ]
            self._screen.query_one(ChoiceBar).ask("Reply copied. Only its code?", choices)

    def block(self, text: str, wanted: str) -> bool:
        """Copy one code block by its number, the last without one; False where there is none."""
        blocks = code_blocks(text)
        place = int(wanted) - 1 if wanted.isdigit() else len(blocks) - 1
        if not 0 <= place < len(blocks):
            return False
        self.text(blocks[place].code, "Code")
        return True

    def text(self, text: str, name: str, then: Callable[[], None] | None = None) -> None:
        """Copy any text by every way there is, and say what is known of it."""
        self._screen.app.copy_to_clipboard(text)

        def checked(outcome: Outcome) -> None:
            self._screen.notify(_SAID[outcome].format(name), timeout=3, markup=False)
            if then is not None:
                then()

        self._background.beside(lambda: copy_and_check(text), checked, lambda _: None)


_SAID = {
    Outcome.CHECKED: "{} copied, and read back from the clipboard",
    Outcome.DIFFERENT: "{} copied, but the clipboard holds something else: try again",
    Outcome.UNCHECKED: "{} copied: handed to the terminal, which does not say whether it took it",
}


def _label(block: CodeBlock) -> str:
    lines = block.code.count("\n") + 1
    return f"{block.language or 'code'}, {lines} line{'s' if lines > 1 else ''}"
