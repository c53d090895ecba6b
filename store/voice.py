"""Whether a message speaks in its writer's own voice, or brings along a text that somebody else wrote.

People paste. Most of what they paste they neither quote nor fence, and an e-mail may say "from now on, always" as well
as its reader may. What is read as an order or as a fact therefore has to look like something that a person types: a
few short lines, not the material of a task (translate, summarise, mend), no letter with its head and its greeting,
nothing behind a line that ends with a colon, nothing that is told of others. That loses some true orders, which can be
given again; one order that nobody gave would stay.

Where it is known for certain what was pasted (`without_pasted`), nothing has to be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from store.provenance import own_words

LONGEST = 600
"""Characters of the owner's own words beyond which a message is taken for pasted."""
MOST_LINES = 4
"""Lines that a person types in a chat; a pasted page has more."""
SENTENCE = 240
"""Characters of a sentence: a longer one tells a story and gives no order."""

_SENTENCE = re.compile(r"[^.!?\n。]+[.!?。]*(?=\s|$)|[^\n]+")
MATERIAL = re.compile(
    r"^(?:please\s+|can you\s+|could you\s+|would you\s+)*(?:translate|summari[sz]e|rewrite|rephrase|"
    r"paraphrase|proofread|correct|fix|edit|explain|analy[sz]e|classify|extract|reply to|respond to|"
    r"answer this|continue|complete|"
    r"check|review|improve|shorten|repeat|write|draft|compose|imagine|pretend|act|"
    r"roleplay|play|suppose|say|here is|here's|this is|"
    r"read|look at)\b|(?:번역|요약|교정|고쳐|다듬어|설명|분석|써|작성|답장|읽어)\S*\s*(?:줘|주세요|해|봐)?[.:]?\s*$",
    re.IGNORECASE,
)
KO_MATERIAL = re.compile(r"(?:번역|요약|교정|고쳐|다듬어|분석|답장|이어\s*써)")
IN_QUOTES = re.compile(
    r"“[^”]*”|\"[^\"]*\"|«[^»]*»|「[^」]*」|『[^』]*』|(?<!\w)'[^'\n]*'(?!\w)|"
    r"(?<!\w)‘[^’\n]*’(?!\w)|<[^>\n]+>"
)

_HOW_TO_REPLY = re.compile(
    r"^(?:please\s+|can you\s+|could you\s+|would you\s+)*(?:explain|write|draft|compose|complete|say|check|read)\b"
    r"[^:\n]*\b(?:from now on|from here on)\W*$",
    re.IGNORECASE,
)
"""A verb of a task, but what it is about is every reply: "write shorter answers from now on"."""

_LETTER = re.compile(
    r"^\s*(?:from|to|cc|subject|date|sent|re|fwd?|보낸\s*사람|받는\s*사람|제목)\s*[:：]|"
    r"^\s*(?:dear\s+\w|(?:best|kind|warm)\s+regards|regards|sincerely|yours|cheers|best|thanks)\W*,\s*$|"
    r"^\s*(?:system|assistant|user|tool|human|ai)\s*[:：]|\|im_(?:start|end)\||\[/?(?:inst|system)\]|"
    r"<<sys>>|^\s*#{1,6}\s|^\s*\{\s*\"|\bignore (?:all |any |the )?(?:previous|prior|above|earlier)\b",
    re.IGNORECASE | re.MULTILINE,
)
_TOLD = re.compile(
    r"\b(?!i\b|you\b|we\b)\w+\s+(?:always\s+|also\s+)?(?:said|says|wrote|writes|told|tells|asked|asks|wants|wanted|claims|"
    r"claimed|demands|demanded|insists|insisted)\b|\baccording to\b|(?:라고|래요|대요|랍니다)(?:\s|[.!]|$)",
    re.IGNORECASE,
)


def without_pasted(message: str, pasted: Iterable[str]) -> str:
    """A message with what was pasted blanked out, so that every character stays where it was."""
    for each in sorted(pasted, key=len, reverse=True):
        if each.strip():
            message = message.replace(each, "\n" * len(each))
    return message


def own_lines(message: str) -> Iterator[str]:
    """The lines of a message that are its writer's own voice, top down; none of a message that brings a text along."""
    own = own_words(message)
    lines = [line for line in own.split("\n") if line.strip()]
    if not lines or len(own) > LONGEST or len(lines) > MOST_LINES or _LETTER.search(own):
        return
    if (MATERIAL.match(own) or KO_MATERIAL.search(own)) and not (
        len(lines) == 1 and _HOW_TO_REPLY.match(own) and not IN_QUOTES.search(own)
    ):
        return
    for line in lines:
        if line.rstrip().endswith((":", "：")):
            return
        yield line


def own_sentences(message: str) -> Iterator[str]:
    """The sentences of a message that are its writer's own voice and no questions, each at most `SENTENCE` long."""
    for line in own_lines(message):
        for found in _SENTENCE.finditer(line):
            sentence = found[0].strip()
            if sentence and len(sentence) <= SENTENCE and not sentence.endswith(("?", "？")):
                yield sentence


def of_others(sentence: str) -> bool:
    """Whether a sentence tells what somebody else says."""
    return _TOLD.search(sentence) is not None
