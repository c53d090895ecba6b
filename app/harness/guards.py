"""Guards: what a reply is held to, checked in code, put right in code where that is safe, else asked for again.

A guard is a template's name and its parameters, which a small model can fill in and a person can read; so what a guard
can do is what the templates here do, whoever made it. `judge` is a pure function of the guards and the reply: the
same reply gets the same verdict, and a repair is only taken where the repaired reply then passes every guard that the
reply passed before.

The next step is guards with code of their own, and their seam is here: a body ``{"template": "code", "language": …,
"source": …, "interface": 1}`` is versioned, diffed, measured and switched off like any other. It needs an allow-list
over its syntax tree and a process with limits to run in, which this version has not, so `checked` refuses it, and an
item that came here by other ways is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.harness import call_guards, text_guards
from app.harness.template import Template
from store.errors import UsageError
from store.items import Item

INTERFACE = 1
"""Which signature of `check` and `repair` a guard's body was made for."""

MOST_RETRIES = 2
CODE = "code"

TEMPLATES: dict[str, Template] = {
    each.name: each for each in (*text_guards.TEMPLATES, *call_guards.TEMPLATES)
}


class Verdict(StrEnum):
    """What a guard came to on one reply."""

    PASSED = "passed"
    REPAIRED = "repaired"
    VIOLATED = "violated"


@dataclass(frozen=True)
class Finding:
    """What one guard said of a reply. ``words`` tell the model and the owner what is wrong; empty where nothing is."""

    item: str
    template: str
    verdict: Verdict
    words: str = ""

    def record(self, retries: int) -> dict[str, Any]:
        """As it is kept with the reply: no words, which may quote what is forgotten one day."""
        return {
            "item": self.item,
            "template": self.template,
            "verdict": self.verdict.value,
            "repaired": self.verdict is Verdict.REPAIRED,
            "retries": retries,
        }


@dataclass(frozen=True)
class Judged:
    """A reply after its guards: its text, repaired where that was possible, and what each of them said."""

    text: str
    findings: tuple[Finding, ...]

    @property
    def breaches(self) -> list[Finding]:
        """What was wrong, put right or not."""
        return [finding for finding in self.findings if finding.verdict is not Verdict.PASSED]

    @property
    def violations(self) -> list[Finding]:
        """What could not be put right."""
        return [finding for finding in self.findings if finding.verdict is Verdict.VIOLATED]


def checked(body: Mapping[str, Any]) -> dict[str, Any]:
    """A guard's body with its parameters checked and their defaults filled in.

    Raises:
        UsageError: there is no such template, or a parameter does not fit it.
    """
    name = str(body.get("template", ""))
    if name == CODE:
        raise UsageError("guards with code of their own are not run by this version: choose a template")
    template = TEMPLATES.get(name)
    if template is None:
        raise UsageError(f"no guard is called {name!r}: there are {', '.join(sorted(TEMPLATES))}")
    return {
        "template": name,
        "interface": INTERFACE,
        "parameters": template.checked(body.get("parameters") or {}),
    }


def judge(guards: Sequence[Item], reply: str) -> Judged:
    """Check a reply against guards in their order, and repair what can be repaired without breaking another."""
    text, findings = reply, []
    for guard in guards:
        template = TEMPLATES.get(str(guard.body.get("template")))
        if template is None:
            continue
        parameters = guard.body.get("parameters") or {}
        wrong = template.check(text, parameters)
        if wrong is None:
            findings.append(Finding(guard.id, template.name, Verdict.PASSED))
            continue
        mended = template.repair(text, parameters)
        sound = mended is not None and bool(mended.strip()) and template.check(mended, parameters) is None
        if mended is not None and sound and not _breaks(guards, guard, text, mended):
            text = mended
            findings.append(Finding(guard.id, template.name, Verdict.REPAIRED, wrong))
        else:
            findings.append(Finding(guard.id, template.name, Verdict.VIOLATED, wrong))
    return Judged(text, tuple(findings))


def request(violations: Sequence[Finding]) -> str:
    """What the model is told when it has to answer again."""
    wrong = "; ".join(finding.words for finding in violations)
    return f"Your answer was not accepted: {wrong}. Answer again, and keep to this."


def note(violations: Sequence[Finding]) -> str:
    """What the owner reads under a reply that was passed on as it is."""
    return "not as asked for: " + "; ".join(finding.words for finding in violations)


def _breaks(guards: Sequence[Item], mending: Item, before: str, after: str) -> bool:
    """Whether a repair breaks what another guard had nothing against."""
    for guard in guards:
        template = TEMPLATES.get(str(guard.body.get("template")))
        if template is None or guard.id == mending.id:
            continue
        parameters = guard.body.get("parameters") or {}
        if template.check(before, parameters) is None and template.check(after, parameters) is not None:
            return True
    return False
