"""Which language a reply is in, by its letters and its commonest words: enough to see that it is not the wanted one.

Scripts tell most languages apart; among those in Latin letters the function words do, which make up a third of any
text. A reply that is too short or too mixed to say is never held to be wrong: a guard that refuses good replies is
worse than none.
"""

from __future__ import annotations

import re
from collections import Counter

from app.harness.sentences import prose

_SCRIPTS = {
    "ko": re.compile(r"[\uac00-\ud7af\u1100-\u11ff]"),
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
}
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_COMMON = {
    "en": "the and of to in is that it for you with are this on be as have not can from or your will which",
    "de": "der die das und ist nicht ein eine zu mit auf für den von sie es auch dem wie oder sich bei wird",
    "fr": "le la les et est un une des pour dans que qui pas vous sur avec au du ce sont plus ou par",
    "es": "el la los las y es un una de que en para con por no su del al se como más lo o está",
    "it": "il la le e è un una di che per con non del della si come più sono gli nel anche o da",
    "pt": "o a os as e é um uma de que para com não do da em por se como mais no na ou seu",
    "nl": "de het een en is van dat niet in op met voor zijn te je aan ook als er maar of wordt naar",
}
_WORDS = {language: frozenset(words.split()) for language, words in _COMMON.items()}
LANGUAGES = tuple(sorted({*_SCRIPTS, *_WORDS}))
_LETTERS_ENOUGH = 12
_WORDS_ENOUGH = 3


def of(text: str) -> str | None:
    """The language of a text without its code, as two letters; None where it cannot be said."""
    said = prose(text)
    counts = Counter({language: len(script.findall(said)) for language, script in _SCRIPTS.items()})
    counts["latin"] = len(_LATIN.findall(said))
    script, most = counts.most_common(1)[0]
    if script == "zh" and counts["ja"] * 10 >= most:
        script = "ja"
    letters = sum(counts.values())
    if letters < _LETTERS_ENOUGH or most * 2 < letters:
        return None
    return script if script != "latin" else _latin(said)


def _latin(said: str) -> str | None:
    words = re.findall(r"[^\W\d_]+", said.lower())
    scores = Counter({language: sum(word in common for word in words) for language, common in _WORDS.items()})
    (best, most), (_, second) = scores.most_common(2)
    return best if most >= _WORDS_ENOUGH and most > second else None
