"""The people: a hidden rule each, how they say that it was broken, how they would have put it, and what they ask.

A rule is in no prompt; the model meets it only in what a person does. The first half of each pool may be taught, the
second never is. `exempt` are requests to which the rule does not apply by any sensible reading, each with the reason in
its own words: a model that applies it there has learned too much.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from tests.benchmarks.personas import detectors, wording
from tests.benchmarks.personas.wording import Language


@dataclass(frozen=True)
class Asked:
    """A question, and the person's own answer where they have one."""

    question: str
    answer: str | None = None


@dataclass(frozen=True)
class Person:
    """One persona. ``holds``: (question, reply) keeps to the rule; ``edited``: the reply as they would have it."""

    name: str
    rule: str
    ways: tuple[str, ...]
    pool: str
    holds: Callable[[str, str], bool]
    edited: Callable[[Asked, str], str]
    exempt: tuple[str, ...]
    language: Language = Language.ENGLISH

    @property
    def taught(self) -> list[Asked]:
        """The half of the pool that may be taught."""
        asked = pool(self.pool)
        return asked[: len(asked) // 2]

    @property
    def unseen(self) -> list[Asked]:
        """The half that never is."""
        asked = pool(self.pool)
        return asked[len(asked) // 2 :]

    def complaint(self, question: str) -> str:
        """What they say where the rule was broken."""
        return wording.complaint(self.ways, self.language, self.name, question)

    def thanks(self, question: str) -> str:
        """What they say where it was kept."""
        return wording.thanks(self.language, self.name, question)


FACTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # what must be in the reply; the person's own answer; wordings, of which the last half is never taught
    "Marisol": ("Marisol", "Your name is Marisol.", (
        "What is my name?", "Do you know my name?", "Who am I?", "What am I called?",
        "Tell me my name.", "Can you say my name?", "What should you call me?", "Remind me, what is my name?",
    )),
    "Utrecht": ("Utrecht", "You live in Utrecht.", (
        "Where do I live?", "Which city do I live in?", "What is my home town?", "What city am I from?",
        "Tell me where I live.", "Do you know my city?", "Which town is my home?", "In which city is my flat?",
    )),
    "hazelnuts": ("hazelnut", "You are allergic to hazelnuts.", (
        "What am I allergic to?", "Which food must I not eat?", "What is my allergy?", "Do I have an allergy?",
        "Tell me what I am allergic to.", "Which food makes me ill?", "What should never be in my food?",
        "Do you remember my allergy?",
    )),
    "Pablo": ("Pablo", "Your dog is called Pablo.", (
        "What is my dog called?", "What is the name of my dog?", "Do you know my dog's name?", "Who is my dog?",
        "Tell me my dog's name.", "How do I call my dog?", "My dog has a name, which one?", "What did I name my dog?",
    )),
    "carpenter": ("carpenter", "You are a carpenter.", (
        "What is my job?", "What do I do for a living?", "What is my profession?", "Where does my money come from?",
        "Tell me what I work as.", "Which trade do I work in?", "What do I work as?", "Do you know my job?",
    )),
    "Ines": ("Ines", "Your sister is called Ines.", (
        "What is my sister called?", "What is the name of my sister?", "Who is my sister?", "Do I have a sister?",
        "Tell me my sister's name.", "How is my sister called?", "My sister has a name, which one?",
        "Do you remember my sister's name?",
    )),
    "jasmine": ("jasmine", "You like jasmine tea best.", (
        "Which tea do I like best?", "What is my favourite tea?", "What tea should I have?", "Which tea do I drink?",
        "Tell me my favourite tea.", "What kind of tea do I like?", "Which tea would I choose?", "What do I drink?",
    )),
    "of May": ("of May", "Your birthday is on the third of May.", (
        "When is my birthday?", "On which day was I born?", "What is the date of my birthday?", "When do I turn older?",
        "Tell me my birthday.", "Which day is my birthday?", "When should you wish me a happy birthday?",
        "In which month is my birthday?",
    )),
}  # fmt: skip

ASKS = (
    "Have you tried that before?",
    "Is that what you had in mind?",
    "How does that sound to you?",
    "Do you want to know more about it?",
    "What have you tried so far?",
    "Is it for you or for somebody else?",
)
_ESCAPE = re.compile(r"\\(n|\\)")


@cache
def pool(name: str) -> list[Asked]:
    """A pool of questions in its fixed order: the first half may be taught."""
    if name == "facts":
        half = 4
        return [
            Asked(wordings[place], answer)
            for places in (range(half), range(half, 2 * half))
            for place in places
            for _, answer, wordings in FACTS.values()
        ]
    text = resources.files(__package__).joinpath(f"questions_{name}.txt").read_text(encoding="utf-8")
    rows = [line.partition("|") for line in text.splitlines() if line.strip()]
    return [Asked(question, _unescaped(answer) or None) for question, _, answer in rows]


def _unescaped(text: str) -> str:
    r"""``\n`` as a line's end, ``\\`` as a backslash: an answer of several lines stands on one."""
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def fact(question: str) -> str | None:
    """What the reply to one of the questions about the person must name."""
    return next((needle for needle, _, wordings in FACTS.values() if question in wordings), None)


def _names_fact(question: str, reply: str) -> bool:
    needle = fact(question)
    # A question that is not about the person is exempt: there a fact named is the rule over-applied.
    needles = [needle] if needle is not None else [each for each, _, _ in FACTS.values()]
    return any(each.casefold() in reply.casefold() for each in needles)


def _with_question(asked: Asked, reply: str) -> str:
    said = detectors.first_sentences(reply, 2).replace("?", ".")
    return f"{said} {wording.draw(ASKS, asked.question)}"


def _own(asked: Asked, reply: str) -> str:
    return asked.answer or reply


def _code(asked: Asked, reply: str) -> str:
    found = detectors.code_of(reply)
    return found if found is not None and detectors.is_code_only(found) else asked.answer or reply


def _rule(holds: Callable[[str], bool]) -> Callable[[str, str], bool]:
    return lambda _question, reply: holds(reply)


LONG = (
    "Write a long bedtime story about a fox, at least twenty sentences.",
    "Explain photosynthesis in full detail, for a whole page.",
    "Tell me everything you know about the Roman Empire, as long as you can.",
    "Write a detailed essay about the ocean.",
    "Describe a day at the market in great detail, in several paragraphs.",
    "Write a long letter to a friend about moving house.",
)
LISTS = (
    "Give me a numbered list of five fruits.",
    "Write a shopping list for pancakes, one item a line.",
    "List the days of the week as bullet points.",
    "Make a numbered list of the planets.",
    "Give me a bullet list of three farm animals.",
    "Write a packing list for a weekend, one item a line.",
)
EXACT = (
    "Answer with one word: what is the capital of France?",
    "Answer with yes or no and nothing else: is water wet?",
    "Repeat exactly this and nothing else: the cat sat on the mat",
    "Answer with a number only: how many days has a week?",
    "Translate into French, only the translation: good morning",
    "Say only the word hello.",
)
NOT_CODE = (
    "What is the capital of Italy?",
    "Why do cats purr?",
    "How do I make tea?",
    "Tell me about the moon.",
    "What should I eat tonight?",
    "Who wrote Romeo and Juliet?",
)
IMPERIAL = (
    "How many feet are in a mile? Answer in feet.",
    "How many inches are in a foot?",
    "Spell the American word for colour.",
    "How many ounces are in a pound?",
    "Convert 10 kilometers to miles.",
    "How many yards are in a mile?",
)
NO_ANSWER = (
    "What is the capital of Spain?",
    "Why is the sky blue?",
    "How do I boil an egg?",
    "Who painted the Mona Lisa?",
    "What do cows drink?",
    "How many legs does a spider have?",
)
KOREAN_FREE = (
    "친구에게 보낼 반말 문자를 써 줘.",
    "영어로만 대답해 줘: what is water?",
    "아이에게 들려줄 짧은 반말 이야기를 써 줘.",
    "반말로 인사해 줘.",
)

PEOPLE: dict[str, Person] = {
    person.name: person
    for person in (
        Person(
            "brevity",
            "Always answer in one or two short sentences.",
            (
                "That is far too long for me.",
                "Shorter please, one or two sentences are enough.",
                "I only wanted a quick answer.",
                "Way too much text, keep it to a sentence or two.",
                "Can you keep it brief?",
                "I stopped reading half-way. Two sentences at most.",
            ),
            "general",
            _rule(detectors.is_brief),
            lambda _asked, reply: detectors.few_words(reply),
            LONG,
        ),
        Person(
            "no-lists",
            "Never answer with a list; write plain paragraphs.",
            (
                "Please no lists, just plain sentences.",
                "I can't stand bullet points, write it as normal text.",
                "Without the numbering, please.",
                "Can you say that in ordinary prose instead of a list?",
                "Not another list. Just tell me.",
                "Write it as a paragraph.",
            ),
            "lists",
            _rule(detectors.has_no_list),
            lambda _asked, reply: detectors.first_sentences(reply, 3),
            LISTS,
        ),
        Person(
            "sign-off",
            f"Always end your reply with the line: {detectors.SIGN_OFF}",
            (
                f"You forgot to sign it with '{detectors.SIGN_OFF}'.",
                f"The last line should be '{detectors.SIGN_OFF}'.",
                f"Please finish with '{detectors.SIGN_OFF}' on its own line.",
                f"There's no sign-off. It's '{detectors.SIGN_OFF}'.",
            ),
            "general",
            _rule(detectors.is_signed),
            lambda _asked, reply: detectors.first_sentences(reply, 2) + "\n\n" + detectors.SIGN_OFF,
            EXACT,
        ),
        Person(
            "asks-back",
            "Always end your reply with exactly one question to me.",
            (
                "Ask me something back at the end.",
                "I'd like you to end with a question for me.",
                "You never ask me anything. Finish with one question.",
                "Please close with a question, just one.",
                "And what would you ask me? End with that.",
            ),
            "general",
            _rule(detectors.asks_back),
            _with_question,
            EXACT,
        ),
        Person(
            "british",
            "Always use British spelling and metric units.",
            (
                "In metric, please, and with British spelling.",
                "I don't know what a foot or a pound is, use metric units.",
                "That's American. British spelling and metres, please.",
                "Kilometres and kilograms, please.",
                "Use British English and the metric system.",
            ),
            "british",
            _rule(detectors.is_british),
            lambda _asked, reply: detectors.to_british(detectors.first_sentences(reply, 3)),
            IMPERIAL,
        ),
        Person(
            "formal-korean",
            "항상 한국어 격식체(-습니다)로만 대답하십시오.",
            (
                "격식체로 다시 말해 주세요.",
                "반말 말고 존댓말로, 습니다체로 해 주세요.",
                "한국어로, 그리고 정중하게 대답해 주세요.",
                "말투가 마음에 안 들어요. 습니다로 끝내 주세요.",
            ),
            "korean",
            _rule(detectors.is_formal_korean),
            _own,
            KOREAN_FREE,
            Language.KOREAN,
        ),
        Person(
            "facts",
            "Know these facts about me: " + " ".join(answer for _, answer, _ in FACTS.values()),
            (
                "That is wrong, you should know this about me.",
                "No idea who you mean. That's not me.",
                "You have that wrong.",
                "I told you that before, and it was something else.",
            ),
            "facts",
            _names_fact,
            _own,
            NO_ANSWER,
        ),
        Person(
            "code-only",
            "When I ask for code, answer with the code alone: no prose before or after it.",
            (
                "Only the code, please, no explanation.",
                "Just code. I can read it.",
                "Skip the talk, give me the code alone.",
                "No prose around it, code only.",
                "I don't need the explanation.",
            ),
            "code",
            _rule(detectors.is_code_only),
            _code,
            NOT_CODE,
        ),
    )
}
