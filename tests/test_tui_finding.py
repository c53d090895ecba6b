"""Finding in the chat: all conversations, any script, filters, the jump to the hit; and sorting conversations."""

from __future__ import annotations

import threading

import pytest
from textual.widgets import Input

from app import titles
from app.tui import find_screen
from app.tui.find_screen import FindScreen, HitList, marked
from app.tui.pages import Page
from app.tui.sidebar import HINT, ConversationList, Sidebar
from store.types import Role
from tests.scripted_service import Script, ScriptedService
from tests.tui_pilot import Chat, chatting, drawn


async def sought(chat: Chat, words: str) -> HitList:
    await chat.press("ctrl+f")
    await chat.until(lambda: isinstance(chat.app.screen, FindScreen))
    chat.app.screen.query_one(Input).value = words
    return chat.app.screen.query_one(HitList)


def lines_of(chat: Chat) -> list[str]:
    """What the list of conversations shows, its lines cut off where it ends."""
    width = chat.app.screen.query_one(Sidebar).content_region.right
    return [line[:width] for line in drawn(chat).splitlines()]


def titles_of(chat: Chat) -> list[str]:
    listing = chat.app.screen_stack[0].query_one(ConversationList)
    return [str(option.prompt).splitlines()[0].strip(" ▌◐") for option in listing.options]


async def test_a_hit_anywhere_is_found_shown_in_context_and_jumped_to(service: ScriptedService) -> None:
    conversation, _ = service.say("最初の質問", "答え [/] です")
    for each in range(40):
        service.say(f"question {each}", f"reply {each}", conversation)
    service.say("別の会話でデプロイ", "はい")
    async with chatting(service, (110, 30)) as chat:
        hits = await sought(chat, "答え")
        await chat.until(lambda: hits.option_count == 1)
        page = chat.app.screen.query_one(Page)
        await chat.until(lambda: "最初の質問" in page.text)
        assert "答え [/] です" in page.text
        await chat.press("enter", "enter")
        await chat.until(lambda: chat.view.conversation == conversation)
        await chat.until(lambda: chat.transcript.query(".-found"))
        found = chat.transcript.query(".-found").first()
        await chat.until(lambda: chat.transcript.region.contains_region(found.region))
        # The reply is picked: the keys that rate mean this one.
        assert chat.transcript.picked is found
        await chat.press("f6")
        await chat.until(lambda: "▲ good" in chat.meta(0))


async def test_enter_right_after_typing_goes_among_the_hits_of_the_new_words(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.say("the old words", "one")
    wanted, _ = service.say("the new words", "two")
    async with chatting(service) as chat:
        hits = await sought(chat, "old")
        await chat.until(lambda: hits.option_count == 1)
        # Long enough that Enter comes before the search by itself.
        monkeypatch.setattr(find_screen, "PAUSE", 60.0)
        box = chat.app.screen.query_one(Input)
        box.value = "new"
        await chat.press("enter")
        await chat.until(lambda: hits.has_focus)
        await chat.press("enter")
        await chat.until(lambda: chat.view.conversation == wanted)


async def test_a_hit_on_a_branch_that_is_not_shown_is_brought_to_the_front(service: ScriptedService) -> None:
    conversation, first = service.say("a question", "the first answer")
    service.scripts = [Script(["the second answer"])]
    async with chatting(service) as chat:
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies and chat.replies[0].entry)
        await chat.press("ctrl+r")
        await chat.settled()
        await chat.until(lambda: chat.replies[-1].text == "the second answer")
        hits = await sought(chat, "first answer")
        await chat.until(lambda: hits.option_count == 1)
        await chat.press("down", "enter")
        await chat.until(lambda: chat.replies and chat.replies[-1].text == "the first answer")
        assert service.thread(conversation).conversation.head == first


async def test_filters_narrow_and_a_wrong_one_says_what_it_takes(service: ScriptedService) -> None:
    _, reply = service.say("an egg", "ten hours")
    service.rate(reply, -1)
    service.say("an egg once more", "ten minutes")
    async with chatting(service) as chat:
        hits = await sought(chat, "egg rated:down")
        await chat.until(lambda: hits.option_count == 1)
        await chat.until(lambda: "ten hours" in chat.app.screen.query_one(Page).text)
        assert "1 found" in chat.seen(".explanation")
        box = chat.app.screen.query_one(Input)
        box.value = "egg rated:sideways"
        await chat.until(lambda: "takes up or down" in chat.seen(".explanation"))
        box.value = "nowhere to be found"
        await chat.until(lambda: "Nothing found" in chat.seen(".explanation"))
        assert hits.option_count == 0
        await chat.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, FindScreen))
        assert chat.composer.has_focus


@pytest.mark.parametrize(
    ("text", "words", "plain"),
    [("An EGG here", "egg", "An EGG here"), ("İx egg", "egg", "İx egg"), ("[/]", "[", "[/]")],
)
def test_what_was_looked_for_is_set_off_and_the_text_is_unchanged(text: str, words: str, plain: str) -> None:
    assert marked(text, words).plain == plain


async def test_the_list_finds_with_the_same_words_and_goes_to_the_hit(service: ScriptedService) -> None:
    conversation, reply = service.say("an egg", "ten hours")
    service.rate(reply, -1)
    service.say("an egg once more", "ten minutes")
    async with chatting(service, (110, 30)) as chat:
        listing = chat.app.screen.query_one(ConversationList)
        await chat.press("ctrl+o", "slash", *"egg rated:sideways")
        await chat.until(lambda: "takes up or down" in chat.seen("Sidebar .hint"))
        chat.app.screen.query_one(Sidebar).query_one(Input).value = "rated:down"
        await chat.until(lambda: listing.option_count == 1)
        await chat.press("enter", "enter")
        await chat.until(lambda: chat.view.conversation == conversation)
        await chat.until(lambda: chat.transcript.query(".-found"))


async def test_the_keys_of_the_list_stay_with_their_words_at_every_width(service: ScriptedService) -> None:
    service.say("first", "1")
    for width in (40, 80, 120):
        async with chatting(service, (width, 24)) as chat:
            await chat.press("ctrl+o")
            await chat.until(lambda: "r rename" in chat.seen("Sidebar .hint"))
            assert [each.strip() for each in lines_of(chat) if "rename" in each or "pin" in each] == (
                HINT.splitlines()
            )


async def test_conversations_are_pinned_tagged_and_archived_with_one_key(service: ScriptedService) -> None:
    first, _ = service.say("first", "1")
    service.say("second", "2")
    async with chatting(service, (110, 30)) as chat:
        await chat.until(lambda: titles_of(chat) == ["second", "first"])
        await chat.press("ctrl+o", "down", "p")
        await chat.until(lambda: titles_of(chat) == ["★ first", "second"])
        await chat.press("t")
        await chat.until(lambda: len(chat.app.screen_stack) == 2)
        await chat.press(*"work #home", "enter")
        await chat.until(lambda: service.tags() == {"home": 1, "work": 1})
        listing = chat.app.screen_stack[0].query_one(ConversationList)
        await chat.until(lambda: "#home #work" in str(listing.get_option_at_index(0).prompt))
        await chat.press("t")
        await chat.until(lambda: len(chat.app.screen_stack) == 2)
        await chat.press("end", "ctrl+u", "enter")
        await chat.until(lambda: service.tags() == {})
        await chat.press("a")
        await chat.until(lambda: titles_of(chat) == ["second", "▾ archive (1)"])
        await chat.press("end", "enter")
        await chat.until(lambda: titles_of(chat) == ["★ first", "▴ back to the conversations"])
        await chat.press("home", "a")
        await chat.until(lambda: titles_of(chat) == ["★ first", "second"])
        assert service.thread(first).conversation.archived is None


async def test_a_new_conversation_gets_a_title_that_is_no_conversation_and_no_lesson(
    service: ScriptedService,
) -> None:
    service.titles = True
    service.scripts = [Script(["Six minutes."]), Script(['"Soft-boiled eggs."'])]
    async with chatting(service, (110, 30)) as chat:
        await chat.ask("How long do I boil an egg so that it stays soft?")
        await chat.until(lambda: titles_of(chat) == ["Soft-boiled eggs"])
        asked = service.requests[-1]
        assert (asked.incognito, asked.base, asked.aside) == (True, True, True)
        assert len(service.conversations()) == 1
        roles = [entry.message.role for entry in service.thread(service.conversations()[0].id).messages]
        assert roles == [Role.USER, Role.ASSISTANT]
        assert service.learning().waiting == []
        # The second exchange asks for no other title.
        await chat.ask("and hard?")
        assert len([each for each in service.requests if each.aside]) == 1


async def test_a_title_gives_way_to_a_question_and_is_made_later(service: ScriptedService) -> None:
    service.titles = True
    held = threading.Event()
    service.scripts = [
        Script(["Six minutes."]),
        Script(["never"], may_start=held),
        Script(["Eleven."]),
        Script(["Eggs"]),
    ]
    async with chatting(service, (110, 30)) as chat:
        await chat.ask("How long do I boil an egg so that it stays soft?")
        await chat.until(lambda: len(service.requests) == 2)
        await chat.ask("and hard?")
        await chat.until(held.is_set)
        await chat.until(lambda: titles_of(chat) == ["Eggs"])


async def test_a_title_that_is_none_leaves_the_first_line(service: ScriptedService) -> None:
    service.titles = True
    long = "Sure! I would be glad to name this for you, here is what I think of it all"
    service.scripts = [Script(["Six minutes."]), Script([long])]
    async with chatting(service, (110, 30)) as chat:
        await chat.ask("How long do I boil an egg so that it stays soft?")
        await chat.until(lambda: len(service.requests) == 2)
        await chat.ask("and hard?")
        assert titles_of(chat)[0].startswith("How long do I boil an")
        assert len(service.requests) == 3


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ('"Soft-boiled eggs."', "Soft-boiled eggs"),
        ("Title: counting words in Python\nand more", "Counting words in Python"),
        ("**卵のゆで方**", "卵のゆで方"),
        ("", None),
        ("...", None),
        ("a b c d e f g h i", None),
        ("x" * 49, None),
        ("You can object in writing", None),
        ("Vaccine, it's a lifesaver", None),
    ],
)
def test_what_will_do_as_a_title(answer: str, title: str | None) -> None:
    assert titles.clean(answer) == title


@pytest.mark.parametrize(("question", "wanted"), [("Where does the Rhine rise?", False), ("x" * 33, True)])
def test_a_short_question_is_its_own_title(question: str, wanted: bool) -> None:
    assert titles.wanted(question) is wanted
