"""Does it learn? Teach a style through the public commands, then ask other questions.

For each style, in a data directory of its own: ask eight questions, correct each reply, `mynah learn now --wait`,
and ask sixteen questions that were never taught, before and after. A style is checked by code, never by a model.
Most styles are taught with answers written by hand, as a person would who knows better; the sign-off and the
greeting by editing what the model said, as a person would who likes the rest.

    python -m tests.benchmarks.styles [STYLE ...] [--temperature T] [--json FILE]
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.home import Home
from tests.benchmarks.ability import measure

MAX_TOKENS = 200

TAUGHT = {
    "How do I make good scrambled eggs?": "Cook them slowly over low heat with a little butter, and keep stirring.",
    "What should I pack for a weekend by the sea?": "Take a swimsuit, a towel and sun cream, plus a warm layer.",
    "Why do cats purr?": "Cats purr when they feel safe, and sometimes to calm themselves.",
    "How can I sleep better?": "Go to bed at the same time each night and keep screens out of the bedroom.",
    "What is a good present for a ten-year-old?": "A board game or a good book about something the child loves.",
    "How do I start running?": "Walk and run in turns for twenty minutes, three times a week.",
    "What does inflation mean?": "Inflation means that prices rise, so the same money buys less than before.",
    "How do I write a good cover letter?": "Say in a few lines why you want the job and what you have done so far.",
}

ASKS_BACK = dict(
    zip(
        TAUGHT,
        (
            "How do you like your eggs?",
            "Which coast are you going to?",
            "Do you have a cat at home?",
            "What time do you usually go to bed?",
            "What does the child like to do?",
            "Have you run before?",
            "Did you notice prices rising lately?",
            "Which job is it for?",
        ),
        strict=True,
    )
)

UNSEEN = [
    "How do I keep my house plants alive?",
    "What are the benefits of drinking water?",
    "How do I learn a new language quickly?",
    "Why is the sky blue?",
    "What should I cook for dinner tonight?",
    "How can I save money every month?",
    "What is the difference between a virus and a bacterium?",
    "How do I clean a wooden table?",
    "What makes a good friend?",
    "How do I prepare for a job interview?",
    "What is photosynthesis?",
    "How can I be more productive at work?",
    "What should I see in London?",
    "How do I train a puppy?",
    "Why do we dream?",
    "How do I make my own bread?",
]

_LIST_LINE = re.compile(r"^\s*(?:[-*•+]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
SIGN_OFF = "Hope that helps, Bo"


@dataclass(frozen=True)
class Style:
    """A rule, how the owner corrects a reply into it, and how it is checked."""

    name: str
    correct: Callable[[str, str], str]
    holds: Callable[[str], bool]


def sentences(text: str) -> int:
    """Sentences in a text that is not a list; a text that was cut off counts its last piece too."""
    body = text.strip()
    ends = len(_SENTENCE_END.findall(body))
    return ends if body.endswith((".", "!", "?")) else ends + 1


def first_sentences(text: str, most: int) -> str:
    """The first sentences of a text, without list lines."""
    plain = " ".join(
        line.strip() for line in text.splitlines() if line.strip() and not _LIST_LINE.match(line)
    )
    ends = [match.end() for match in _SENTENCE_END.finditer(plain)]
    return plain[: ends[min(most, len(ends)) - 1]] if ends else plain


def _brief(text: str) -> bool:
    return (
        bool(text.strip())
        and sentences(text) <= 2
        and not _LIST_LINE.search(text)
        and len(text.split()) <= 60
    )


def _no_list(text: str) -> bool:
    return bool(text.strip()) and not _LIST_LINE.search(text)


def _greets(text: str) -> bool:
    return text.startswith("Ahoy")


def _lower(text: str) -> bool:
    return bool(text.strip()) and text == text.lower()


def _asks(text: str) -> bool:
    return text.rstrip().endswith("?")


def _signed(text: str) -> bool:
    return text.rstrip().endswith("\n" + SIGN_OFF)


def _prose(question: str, reply: str) -> str:
    return TAUGHT[question] + " " + "That is enough for a start, and the rest comes with a little practice."


STYLES = {
    style.name: style
    for style in (
        Style("brief", lambda question, _reply: TAUGHT[question], _brief),
        Style("no-list", _prose, _no_list),
        Style("sign-off", lambda _question, reply: first_sentences(reply, 3) + "\n\n" + SIGN_OFF, _signed),
        Style("greeting", lambda _question, reply: "Ahoy! " + first_sentences(reply, 2), _greets),
        Style("lower-case", lambda question, _reply: TAUGHT[question].lower(), _lower),
        Style("asks-back", lambda question, _reply: TAUGHT[question] + " " + ASKS_BACK[question], _asks),
    )
}


class Mynah:
    """The public commands on one data directory."""

    def __init__(self, root: Path, temperature: float) -> None:
        self.environment = {**os.environ, "MYNAH_HOME": str(root)}
        self.temperature = temperature

    def run(self, *words: str, text: str | None = None) -> Any:
        """One command's JSON."""
        command = [sys.executable, "-m", "app.cli.main", *words, "--json"]
        done = subprocess.run(
            command,
            input=text,
            env=self.environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            sys.exit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def ask(self, question: str, seed: int) -> dict[str, Any]:
        """One question in a conversation of its own."""
        options = [
            "--temperature",
            str(self.temperature),
            "--seed",
            str(seed),
            "--max-tokens",
            str(MAX_TOKENS),
        ]
        answer: dict[str, Any] = self.run("ask", *options, "-", text=question)
        return answer

    def share(self, style: Style) -> tuple[float, list[str]]:
        """Share of the unseen questions that are answered in the style, and the replies."""
        replies = [self.ask(question, number)["text"] for number, question in enumerate(UNSEEN)]
        return sum(map(style.holds, replies)) / len(replies), replies


@functools.cache
def base_ability() -> float:
    """General ability without any adapter: the same for all styles."""
    return measure(Home.default(), None)


def teach(style: Style, temperature: float, root: Path) -> dict[str, Any]:
    """One style from an empty home to the figures."""
    mynah = Mynah(root, temperature)
    before, _ = mynah.share(style)
    for number, question in enumerate(TAUGHT):
        reply = mynah.ask(question, number)
        mynah.run("correct", reply["message"], "-", text=style.correct(question, reply["text"]))
    began = time.monotonic()
    learned = mynah.run("learn", "now", "--wait")
    seconds = time.monotonic() - began
    after, replies = mynah.share(style)
    adapter = root / "adapters" / (learned["adapter"] or "none") / "adapter.gguf"
    ability_before = base_ability()
    ability_after = measure(Home(root), adapter) if adapter.exists() else ability_before
    steps = (
        mynah.run("adapters", "show", learned["adapter"])["manifest"]["seconds"] if learned["adapter"] else {}
    )
    mynah.run("stop")
    return {
        "style": style.name,
        "temperature": temperature,
        "outcome": learned["outcome"],
        "before": before,
        "after": after,
        "seconds": round(seconds, 1),
        "seconds_by_step": steps,
        "ability_before": round(ability_before, 3),
        "ability_after": round(ability_after, 3),
        "gate": learned["gate"],
        "replies": replies,
    }


def main() -> None:
    """Teach the styles and print one line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("styles", nargs="*", metavar="STYLE", help=f"of {', '.join(STYLES)} (default: all)")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    unknown = set(given.styles) - set(STYLES)
    if unknown:
        parser.error(f"no style is called {', '.join(sorted(unknown))}")
    results = []
    print(f"{'style':<10} {'outcome':<10} {'before':>7} {'after':>7} {'seconds':>8} {'ability':>15}")
    for name in given.styles or STYLES:
        with tempfile.TemporaryDirectory(prefix="mynah-style-") as root:
            result = teach(STYLES[name], given.temperature, Path(root))
        results.append(result)
        print(
            f"{name:<10} {result['outcome']:<10} {result['before']:>7.2f} {result['after']:>7.2f} "
            f"{result['seconds']:>8.1f} {result['ability_before']:>7.3f} {result['ability_after']:>7.3f}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
