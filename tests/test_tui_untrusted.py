"""Text from outside is text: in questions, replies, titles, errors, lessons. Never markup, never a crash."""

from __future__ import annotations

from functools import partial

from textual.widgets import Input, OptionList

from app.host.events import Failed
from app.tui.pages import Page
from app.tui.sidebar import Sidebar
from app.tui.transcript import QuestionView
from store.errors import HostUnavailable
from store.types import ErrorClass
from tests.scripted_service import GATE, Script, ScriptedService
from tests.tui_pilot import chatting

NASTY = (
    "[/]",
    "[/foo]",
    "[red]x[/blue]",
    "[@click=app.quit]x[/]",
    "[link='file:///etc/passwd'",
    "$primary [$primary]",
    "\x1b[31m\x1b]0;title\x07 \x9b31m",
    "<script>alert(1)</script> <b>bold",
    "![x](http://x/y.png) [a](javascript:alert(1))",
    "\u202eright to left\u202c \u200d \ufeff",
)


async def test_nasty_text_is_shown_in_questions_replies_titles_and_errors(service: ScriptedService) -> None:
    broken = [Failed(ErrorClass.UNKNOWN, f"an error {text}") for text in NASTY]
    service.scripts = [
        script
        for text, failed in zip(NASTY, broken, strict=True)
        for script in (Script((text,)), Script(("so far",), fails_after=failed))
    ]
    async with chatting(service, (120, 36)) as chat:
        for text in NASTY:
            await chat.press("ctrl+n")
            await chat.ask(text)
            assert chat.replies[-1].text == text
            assert chat.transcript.query_one(QuestionView).text == text
            service.rename(str(chat.view.conversation), f"title {text}")
            await chat.ask("again")
            assert "an error" in chat.meta()
        await chat.press("ctrl+o")
        titles = chat.app.screen.query_one(Sidebar)
        await chat.until(
            lambda: sum(title.startswith("title") for title in titles.titles.values()) == len(NASTY)
        )
        assert chat.app.is_running


async def test_nasty_text_is_shown_in_what_was_learned(service: ScriptedService) -> None:
    for text in NASTY:
        _, reply = service.say(text, text)
        service.correct(reply, f"better {text}")
    service.learned({**GATE, "passed": False, "summary": " ".join(NASTY)}, passes=False)
    async with chatting(service, (120, 60)) as chat:
        await chat.press("f3")
        listing = chat.app.screen.query_one(OptionList)
        await chat.until(lambda: listing.option_count == 3)
        story = chat.app.screen.query_one("#detail", Page)
        for row in ("home", "down"):
            await chat.press(row)
            await chat.until(lambda: story.text.count("\n") > 2 * len(NASTY))
        for key in ("c", "3", "4"):
            await chat.press(key)
        service.learned({**GATE, "passed": False, "summary": NASTY[0]}, passes=False, salt="again")
        await chat.press("escape")
        await chat.until(lambda: f"Nothing changed: {NASTY[0]}" in chat.toasts)
        assert chat.app.is_running


async def test_nasty_text_is_shown_where_it_is_found_told_corrected_and_forgotten(
    service: ScriptedService,
) -> None:
    async with chatting(service, (120, 40)) as chat:
        for text in (NASTY[0], " ".join(NASTY)):
            conversation, reply = service.say(f"about {text}", f"reply {text}")
            service.rename(conversation, f"title {text}")
            service.rate(reply, -1, note=f"note {text}")
            service.correct(reply, f"better {text}")
            chat.view.open(conversation)
            await chat.until(lambda: chat.replies and chat.replies[-1].entry and chat.replies[-1].text)
            for key in ("f12", "f8"):
                await chat.press(key)
                await chat.press("escape")
            await chat.press("ctrl+f")
            chat.app.screen.query_one(Input).value = NASTY[0]
            found = chat.app.screen.query_one(OptionList)
            await chat.until(partial(getattr, found, "option_count"))
            await chat.press("escape", "ctrl+o", "v", "escape", "d", "escape")
        assert chat.app.is_running
        assert len(chat.app.screen_stack) == 1


async def test_a_nasty_error_of_the_host_is_one_line(service: ScriptedService) -> None:
    service.host_error = HostUnavailable(" ".join(NASTY[:5]))
    async with chatting(service) as chat:
        await chat.until(lambda: " ".join(NASTY[:5]) in chat.seen("Complaint"))


async def test_a_fence_of_any_language_is_code(service: ScriptedService) -> None:
    languages = ("|", "../x", "🐦", "x" * 500, "python {.line}", "[/]")
    service.scripts = [Script((f"```{language}\nx = 1\n```",)) for language in languages]
    async with chatting(service) as chat:
        for _ in languages:
            await chat.ask("code")
            assert [type(block).__name__ for block in chat.replies[-1].query("MarkdownBlock")] == [
                "ChatFence"
            ]


async def test_html_in_a_reply_is_not_lost(service: ScriptedService) -> None:
    service.scripts = [Script(("<div>\nhello\n</div>\n\nand <b>this</b>",))]
    async with chatting(service) as chat:
        await chat.ask("html")
        shown = " ".join(str(block.render()) for block in chat.replies[-1].query("MarkdownParagraph"))
        assert "<div>" in shown
        assert "<b>this</b>" in shown


async def test_lines_of_a_reply_stay_lines(service: ScriptedService) -> None:
    service.scripts = [Script(("The answer.\nHope that helps, Bo",))]
    async with chatting(service) as chat:
        await chat.ask("a question")
        shown = str(chat.replies[-1].query_one("MarkdownParagraph").render())
        assert shown.splitlines() == ["The answer.", "Hope that helps, Bo"]
