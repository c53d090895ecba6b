"""Long lists in parts that touch, so that one that grows costs no more for its last item than for its first.

To Textual a list is one block, which is made anew with each text that is appended to it: four widgets an item, two
seconds for six hundred. Cut every ``PART`` items by the parser itself, only the last part is made anew, and a list
that is drawn at once is cut in the same places: what is streamed ends as what one update shows. It is cut only where
the part alone reads the same: its items are numbered on from the number that stands there.
"""

from __future__ import annotations

from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownBlock, MarkdownBulletList, MarkdownOrderedList

PART = 12
CONTINUES = "continues"
"""Key in the data of the token that opens a part which goes on with the one above."""
CONTINUED, GOES_ON = "-continued", "-goes-on"


def part_lists(state: StateCore) -> None:
    """A rule of the parser: cut the lists that stand by themselves."""
    made: list[Token] = []
    opened: Token | None = None
    items = first = 0
    in_order = True
    for token in state.tokens:
        if token.level == 0 and token.type.endswith("_list_open"):
            opened, items, in_order = token, 0, True
        elif token.level == 1 and token.type == "list_item_open" and opened is not None:
            # A bullet has no number, and follows on every other.
            number = int(token.info) if token.info else first + items
            in_order = not items or (in_order and number == first + items)
            if items >= PART and in_order:
                opened, items = _cut(made, opened, token), 0
            first = first if items else number
            items += 1
        made.append(token)
    state.tokens[:] = made


def _cut(made: list[Token], opened: Token, item: Token) -> Token:
    """End a part before an item and open the next one there."""
    assert opened.map is not None
    assert item.map is not None
    line, end = item.map[0], opened.map[1]
    made.append(
        Token(opened.type.replace("_open", "_close"), opened.tag, -1, block=True, markup=opened.markup)
    )
    following = opened.copy(map=[line, end], meta={**opened.meta, CONTINUES: True})
    opened.map = [opened.map[0], line]
    made.append(following)
    return following


class _Part(MarkdownBlock):
    """A list, or a part of one."""

    def __init__(self, markdown: Markdown, token: Token) -> None:
        super().__init__(markdown, token)
        self.set_class(CONTINUES in token.meta, CONTINUED)

    def on_mount(self) -> None:
        if self.has_class(CONTINUED):
            self._tell_the_one_above(goes_on=True)

    def _tell_the_one_above(self, *, goes_on: bool) -> None:
        siblings = self.parent.children if self.parent is not None else ()
        place = siblings.index(self) if self in siblings else 0
        above = siblings[place - 1] if place else None
        if isinstance(above, _Part):
            above.set_class(goes_on, GOES_ON)

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        """Make it anew. Its text begins with this part, so only this one knows that it goes on with another."""
        if self.has_class(CONTINUED):
            # A dash that began an item may turn out to begin a line across the page.
            self._tell_the_one_above(goes_on=isinstance(block, _Part))
            block.set_class(isinstance(block, _Part), CONTINUED)
        await super()._update_from_block(block)


# The looks of a widget are those of its first base.
class ChatBulletList(MarkdownBulletList, _Part):
    """Items with a mark before each."""


class ChatOrderedList(MarkdownOrderedList, _Part):
    """Items with a number before each."""
