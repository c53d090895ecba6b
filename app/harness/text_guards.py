"""The guards on what a reply says: length, language, lists, words that must or must not be there, spelling, form.

Every repair leaves out or changes form, and none writes anything of its own: a guard may cut a reply, it may not
speak in the model's place.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence

from app.harness import languages, measures, schemas, sentences, spelling
from app.harness.schemas import unusable
from app.harness.template import Parameter, Parameters, Template, one_of, phrases, whole, words

WRONG, PASSED = "wrong", "passed"
"""What a reply without code is to a guard that wants nothing but code."""


def _length(text: str, limits: Parameters) -> str | None:
    counts = {
        "sentences": len(sentences.sentences(text)),
        "words": len(sentences.words(text)),
        "characters": len(text.strip()),
    }
    for name, count in counts.items():
        limit = limits.get(name)
        if limit is not None and count > limit:
            return f"it has {count} {name}, and {limit} at most are wanted"
    return None


def _shortened(text: str, limits: Parameters) -> str | None:
    """As many whole sentences as fit; cut within a sentence only where not even the first fits."""
    whole = sentences.sentences(text.strip())
    kept = _most(whole, lambda parts: _length("".join(parts), limits) is None)
    if kept:
        return "".join(whole[:kept]).rstrip()
    words = text.strip().split(" ")
    kept = _most(words, lambda parts: _length(" ".join(parts) + "…", limits) is None)
    return " ".join(words[:kept]).rstrip(",;:") + "…" if kept else None


def _most(parts: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> int:
    """How many of the parts fit together. By halving: a model that loops writes thousands of words in one sentence."""
    return bisect_left(range(1, len(parts) + 1), True, key=lambda count: not fits(parts[:count]))


def _language(text: str, wanted: Parameters) -> str | None:
    found = languages.of(text)
    if found is None or found == wanted["language"]:
        return None
    return f"it is in the language {found!r}, and {wanted['language']!r} is wanted"


def _list(text: str, _none: Parameters) -> str | None:
    return "it is a list, and whole sentences without lists are wanted" if sentences.is_list(text) else None


def _contained(text: str, wanted: Parameters) -> str | None:
    missing = [phrase for phrase in wanted["text"] if phrase.casefold() not in text.casefold()]
    return f"it must contain {_quoted(missing)}" if missing else None


def _ending(text: str, wanted: Parameters) -> str | None:
    """What begins with a new line is a line of its own."""
    ending = str(wanted["text"]).strip()
    if text.rstrip().endswith("\n" + ending if wanted["text"].startswith("\n") else ending):
        return None
    return f"it must end with {_quoted([ending])}"


def _ended(text: str, wanted: Parameters) -> str | None:
    """The owner's own words in the place where they are wanted."""
    said, ending = text.rstrip(), str(wanted["text"]).strip()
    if wanted["text"].startswith("\n"):
        return f"{said.removesuffix(ending).rstrip()}\n\n{ending}"
    # A part of it may stand there already, as a question mark of three.
    common = next((size for size in range(len(ending), 0, -1) if said.endswith(ending[:size])), 0)
    if common:
        return said + ending[common:]
    return f"{said} {ending}" if ending[:1].isalnum() or len(ending) > 3 else said + ending


def _forbidden(text: str, unwanted: Parameters) -> str | None:
    found = [phrase for phrase in unwanted["phrases"] if _phrase(phrase).search(text)]
    return f"it must not contain {_quoted(found)}" if found else None


def _without(text: str, unwanted: Parameters) -> str | None:
    """Without the sentences that hold a phrase; nothing where none is left."""
    patterns = [_phrase(phrase) for phrase in unwanted["phrases"]]
    kept = [
        sentence
        for sentence in sentences.sentences(text)
        if not any(pattern.search(sentence) for pattern in patterns)
    ]
    return "".join(kept).strip() or None


def _spelling(text: str, wanted: Parameters) -> str | None:
    found = spelling.foreign(sentences.prose(text), wanted["variant"])
    return f"{_quoted(found[:5])} is not {wanted['variant'].capitalize()} spelling" if found else None


def _respelt(text: str, wanted: Parameters) -> str | None:
    return spelling.respelt(text, wanted["variant"])


def _units(text: str, wanted: Parameters) -> str | None:
    found = measures.imperial(text)
    if found:
        return f"metric units are wanted, not {_quoted(found[:5])}"
    return _spelling(text, wanted) if "variant" in wanted else None


def _converted(text: str, wanted: Parameters) -> str | None:
    said = measures.metric(text)
    return _respelt(said, wanted) if "variant" in wanted else said


def _question(text: str, _none: Parameters) -> str | None:
    said = text.rstrip(" \n\"'”’)*")
    if said.endswith(("?", "？")) and len(re.findall(r"[?？]+", said)) == 1:
        return None
    return "it must end with one question to me, and ask no other"


def _json(text: str, wanted: Parameters) -> str | None:
    try:
        value = schemas.parsed(text)
    except (ValueError, RecursionError):
        return "it must be JSON and nothing else"
    if text.strip().startswith("```"):
        return "it must be JSON without a fence around it"
    wrong = schemas.violation(value, wanted["schema"])
    return None if wrong is None else f"the JSON is not as wanted: {wrong}"


def _json_alone(text: str, wanted: Parameters) -> str | None:
    return schemas.found_in(text, wanted["schema"])


def _code(text: str, wanted: Parameters) -> str | None:
    around = sentences.prose(text).strip()
    if sentences.code_blocks(text):
        return "it must be code and nothing else" if around else None
    if wanted.get("without_code") == PASSED:
        return None
    return "it must be one block of code between fences"


def _code_alone(text: str, _none: Parameters) -> str | None:
    blocks = list(sentences.fenced(text))
    return "\n\n".join(blocks) if blocks else None


def _schema(value: object) -> object:
    if (wrong := unusable(value)) is not None:
        raise ValueError(wrong)
    return value


def _phrase(phrase: str) -> re.Pattern[str]:
    """A phrase as a whole: "his" is not in "this". Scripts that write words together have no such borders."""
    body = r"\s+".join(re.escape(word) for word in phrase.split())
    before = r"(?<!\w)" if phrase[:1].isascii() and phrase[:1].isalnum() else ""
    after = r"(?!\w)" if phrase.strip()[-1:].isascii() and phrase.strip()[-1:].isalnum() else ""
    return re.compile(before + body + after, re.IGNORECASE)


def _quoted(found: list[str]) -> str:
    return ", ".join(f"“{phrase}”" for phrase in found)


_COUNT = Parameter("a whole number from 1 on", whole, required=False)
TEMPLATES = (
    Template(
        "length",
        "no more than so many sentences, words or characters",
        {"sentences": _COUNT, "words": _COUNT, "characters": _COUNT},
        _length,
        _shortened,
        some_of=("sentences", "words", "characters"),
    ),
    Template(
        "language",
        "in one language",
        {"language": Parameter("two letters", one_of(*languages.LANGUAGES))},
        _language,
    ),
    Template("no_list", "no lists", {}, _list, lambda text, _none: sentences.unlisted(text)),
    Template(
        "must_contain", "holds these words", {"text": Parameter("a text or several", phrases)}, _contained
    ),
    Template("must_end_with", "ends with this", {"text": Parameter("a text", words)}, _ending, _ended),
    Template(
        "forbidden",
        "never says these words",
        {"phrases": Parameter("a text or several", phrases)},
        _forbidden,
        _without,
    ),
    Template(
        "spelling",
        "British or American spelling",
        {"variant": Parameter("british or american", one_of(spelling.BRITISH, spelling.AMERICAN))},
        _spelling,
        _respelt,
    ),
    Template(
        "units",
        "metric units, in one spelling where that is wanted as well",
        {
            "variant": Parameter(
                "british or american", one_of(spelling.BRITISH, spelling.AMERICAN), required=False
            )
        },
        _units,
        _converted,
    ),
    Template("ends_with_question", "ends with one question", {}, _question),
    Template(
        "json_schema",
        "JSON that fits a schema, and nothing else",
        {"schema": Parameter("a JSON schema", _schema)},
        _json,
        _json_alone,
    ),
    Template(
        "code_only",
        "code between fences, and nothing else",
        {
            "without_code": Parameter(
                "wrong or passed: a reply without code", one_of(WRONG, PASSED), required=False
            )
        },
        _code,
        _code_alone,
    ),
)
