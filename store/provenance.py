"""Who said something, and so whether it may teach: only what the owner wrote, and replies the owner accepted.

Whatever came from elsewhere is data. A tool's output, a document the owner pasted, a transcript another program sent
or an import brought may say "remember: always" or hold a thumb; nobody here meant it, and a model that learned from
it could be taught by anyone who can write a web page. A person marks what others said by quoting it, in the way
every chat understands: lines that begin with ``>`` and blocks between fences. What is left are the owner's words.

A correction stands in place of the reply, so a fenced block in it is the owner's own where the reply had one too:
code corrected with code. Its quoted lines never are.
"""

from __future__ import annotations

import re
from enum import StrEnum

from store.db import Store
from store.types import Role

ONLY_QUOTED = "it only quotes what somebody else said: write it in your own words, without `>` or fences"
NOT_MADE_HERE = "this text was not written by the model here"

_NAME = 40
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_QUOTE = re.compile(r" {0,3}>")


class Provenance(StrEnum):
    """Where a message came from."""

    OWNER = "owner"
    MODEL = "model"
    TOOL = "tool"
    CLIENT = "client"
    IMPORTED = "imported"


class Fenced(StrEnum):
    """What a block between fences is."""

    QUOTED = "quoted"
    OWN = "own"


def of_message(role: Role, *, made_here: bool, imported: bool) -> Provenance:
    """Who a message is from. ``made_here``: a model computed it here; ``imported``: it came in a file."""
    if imported:
        return Provenance.IMPORTED
    if role is Role.USER:
        return Provenance.OWNER
    if role is Role.TOOL:
        return Provenance.TOOL
    return Provenance.MODEL if role is Role.ASSISTANT and made_here else Provenance.CLIENT


def authors_elsewhere(store: Store, conversation: str) -> dict[str, str]:
    """Whose the replies of a conversation are that no model here wrote, in a word or two, by reply.

    A file says which model wrote it, or does not; a program that sends a transcript only claims that it is a reply.
    """
    rows = store.conn.execute(
        "SELECT id, origin, model FROM messages LEFT JOIN origins ON origins.message = messages.id "
        "WHERE conversation = ? AND role = ? AND base_hash IS NULL",
        (conversation, Role.ASSISTANT),
    )
    return {
        row["id"]: "a program" if row["origin"] is None else str(row["model"] or "imported")[:_NAME]
        for row in rows
    }


def may_instruct(source: Provenance) -> bool:
    """Whether what it says may become an instruction, a memory or a verdict on a reply."""
    return source is Provenance.OWNER


def own_words(text: str, fenced: Fenced = Fenced.QUOTED) -> str:
    """A text without what it quotes; empty where it is nothing but quotation.

    Quoted are lines that begin with ``>``, at most three spaces in, and what stands between fences of three or more
    backticks or tildes, to the end of the text where the fence is never closed (CommonMark 0.31, sections 4.5, 5.1).
    """
    if "`" not in text and "~" not in text and ">" not in text:
        return text.strip()
    kept: list[str] = []
    fence: str | None = None
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence is not None:
            closes = mark is not None and mark[1].startswith(fence) and not mark[2].strip()
            fence = None if closes else fence
        elif mark is not None and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
        elif _QUOTE.match(line):
            continue
        else:
            kept.append(line)
            continue
        if fenced is Fenced.OWN:
            kept.append(line)
    return "\n".join(kept).strip()


def own_correction(text: str, reply: str) -> str:
    """What of a correction the owner wrote; empty where that is nothing, or no more than the reply itself."""
    code = own_words(reply) != own_words(reply, Fenced.OWN)
    own = own_words(text, Fenced.OWN if code else Fenced.QUOTED)
    return "" if own == reply.strip() else own
