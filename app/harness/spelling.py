"""British and American spelling, as a table of words: both ways, whole words only, code left alone.

A table and not rules: a rule that turns -ise into -ize turns "exercise" and "surprise" too. It holds the words that
people meet in prose, with their endings; a word it does not know stays as it is.
"""

from __future__ import annotations

import re

from app.harness.sentences import outside_code

BRITISH, AMERICAN = "british", "american"

# Stem, British ending, American ending; then what both take after it.
_STEMS = """
col our or:s,ed,ing,ful,less|fav our or:s,ed,ing,ite,ites,able|hon our or:s,ed,ing,able|lab our or:s,ed,ing,er,ers
neighb our or:s,ing,hood,hoods|flav our or:s,ed,ing|hum our or:s,ed,ing|rum our or:s,ed|harb our or:s,ed,ing
behavi our or:s,al|endeav our or:s,ed,ing|vap our or:s|arm our or:ed,s|glam our or:|sav our or:y,ed,ing
cent re er:s|met re er:s|lit re er:s|theat re er:s|fib re er:s|kilomet re er:s|centimet re er:s
millimet re er:s|calib re er:
organ is iz:e,es,ed,ing,er,ers,ation,ations|real is iz:e,es,ed,ing,ation|recogn is iz:e,es,ed,ing,able
apolog is iz:e,es,ed,ing|emphas is iz:e,ed,ing|special is iz:e,es,ed,ing,ation|summar is iz:e,es,ed,ing
minim is iz:e,es,ed,ing|maxim is iz:e,es,ed,ing|optim is iz:e,es,ed,ing,er,ation,ations|util is iz:e,es,ed,ing,ation
character is iz:e,es,ed,ing|critic is iz:e,es,ed,ing|memor is iz:e,es,ed,ing|general is iz:e,es,ed,ing,ation
initial is iz:e,es,ed,ing,ation|normal is iz:e,es,ed,ing,ation|visual is iz:e,es,ed,ing,ation
prior itis itiz:e,es,ed,ing
custom is iz:e,es,ed,ing,ation|author is iz:e,es,ed,ing,ation|categor is iz:e,es,ed,ing|final is iz:e,es,ed,ing
modern is iz:e,ed,ing,ation|symbol is iz:e,es,ed,ing|stabil is iz:e,es,ed,ing|synchron is iz:e,es,ed,ing,ation
anal ys yz:e,ed,ing,er|paral ys yz:e,ed,ing|cata lys lyz:e,ed,ing
travel l :ed,ing,er,ers|cancel l :ed,ing|label l :ed,ing|model l :ed,ing|signal l :ed,ing|fuel l :ed,ing
level l :ed,ing
counsel l :ed,ing,or,ors|jewel l :er,ers|marvel l :ed,ing,ous|total l :ed,ing|quarrel l :ed,ing
def ence ense:s,less|off ence ense:s|lic ence ense:s|pret ence ense:s
catalog ue :s|dialog ue :s|analog ue :s|enrol - l:s,ment|fulfil - l:s,ment|distil - l:s
"""
_WHOLE = {
    "centred": "centered",
    "centring": "centering",
    "skilful": "skillful",
    "wilful": "willful",
    "instalment": "installment",
    "instalments": "installments",
    "pyjamas": "pajamas",
    "moustache": "mustache",
    "kerb": "curb",
    "sceptic": "skeptic",
    "sceptical": "skeptical",
    "scepticism": "skepticism",
    "storey": "story",
    "ageing": "aging",
    "judgement": "judgment",
    "acknowledgement": "acknowledgment",
    "learnt": "learned",
    "burnt": "burned",
    "spelt": "spelled",
    "practise": "practice",
    "manoeuvre": "maneuver",
    "oesophagus": "esophagus",
    "anaemia": "anemia",
    "encyclopaedia": "encyclopedia",
    "paediatric": "pediatric",
    "haemoglobin": "hemoglobin",
    "maths": "math",
    "mum": "mom",
    "aeroplane": "airplane",
    "artefact": "artifact",
    "aluminium": "aluminum",
    "cheque": "check",
    "doughnut": "donut",
    "draught": "draft",
    "grey": "gray",
    "greys": "grays",
    "greyish": "grayish",
    "jewellery": "jewelry",
    "cosy": "cozy",
    "mould": "mold",
    "mouldy": "moldy",
    "plough": "plow",
    "programme": "program",
    "programmes": "programs",
    "tyre": "tire",
    "tyres": "tires",
    "towards": "toward",
    "whilst": "while",
}
# To British these would turn words that are right there as well.
_ONE_WAY = frozenset(
    "check curb draft program programs story practice tire tires math learned burned spelled toward while "
    "meter meters license licenses dialog dialogs".split()
)


def _table() -> dict[str, str]:
    table: dict[str, str] = {}
    for entry in _STEMS.replace("\n", "|").split("|"):
        head, _, endings = entry.strip().partition(":")
        parts = head.split(" ")
        if len(parts) < 2:
            continue
        stem, british = parts[0], parts[1].replace("-", "")
        american = parts[2] if len(parts) > 2 else ""
        plain = () if british in ("is", "ys", "lys", "itis", "l") else ("",)
        for ending in (*plain, *filter(None, endings.split(","))):
            table[_joined(stem, british, ending)] = _joined(stem, american, ending)
    return table | _WHOLE


def _joined(stem: str, middle: str, ending: str) -> str:
    if middle in ("re", "ue", "ence", "ense") and ending[:1] in ("e", "i") and ending:
        middle = middle[:-1]
    return stem + middle + ending


_TO_AMERICAN = _table()
_TO_BRITISH = {american: british for british, american in _TO_AMERICAN.items() if american not in _ONE_WAY}
# A meter may be a device as well, but not after a number.
_MEASURED = re.compile(r"(?<=\d)([\s-]?m)eter(s?)\b", re.IGNORECASE)
# What stands between backticks is code, and comes back as it is.
_WORD = re.compile(r"`[^`\n]*`|[A-Za-z]+")


def foreign(text: str, variant: str) -> list[str]:
    """The words that are spelt the other way, in their order, each once."""
    table = _table_of(variant)
    found = [word.lower() for word in _WORD.findall(text)]
    foreign_ones = [word for word in found if word in table]
    if variant == BRITISH:
        foreign_ones += [f"meter{each[2]}".lower() for each in _MEASURED.finditer(text)]
    return list(dict.fromkeys(foreign_ones))


def respelt(text: str, variant: str) -> str:
    """A text in one spelling; capitals and code stay."""
    table = _table_of(variant)

    def turned(found: re.Match[str]) -> str:
        word = found[0]
        other = table.get(word.lower())
        if other is None:
            return word
        if word.isupper():
            return other.upper()
        return other.capitalize() if word[0].isupper() else other

    def respelt_prose(prose: str) -> str:
        return _WORD.sub(turned, _MEASURED.sub(r"\1etre\2", prose) if variant == BRITISH else prose)

    return outside_code(text, respelt_prose)


def _table_of(variant: str) -> dict[str, str]:
    return _TO_BRITISH if variant == BRITISH else _TO_AMERICAN
