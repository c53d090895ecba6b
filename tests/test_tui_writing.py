"""Writing: going on, editing, quoting, attaching, commands by name, keys of one's own, drafts that are kept."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual import events
from textual.command import CommandPalette
from textual.content import Content
from textual.widgets import Input, OptionList

from app.tui.app import MynahApp
from app.tui.fences import code_blocks
from app.tui.keys import CHAT, CONVERSATION, chosen, misnamed
from app.tui.message_views import QuestionView
from app.tui.palette import THEMES
from app.tui.paths import Completion, complete
from app.tui.slash import CommandList
from app.tui.transcript import Welcome
from app.tui.writing import quoted, read_file
from store import conversations, settings
from store.errors import HostUnavailable, NotFound, UsageError
from tests.scripted_service import Script, ScriptedService
from tests.tui_pilot import Chat, chatting


def questions(chat: Chat) -> list[QuestionView]:
    return list(chat.transcript.query(QuestionView))


def offered(chat: Chat) -> str:
    shown = chat.app.screen.query_one(CommandList)
    return str(shown.render()) if shown.display else ""


def first_found(chat: Chat) -> str:
    """The command that Enter takes from the palette; nothing before it is found."""
    listing = chat.app.screen.query_one(OptionList)
    place = listing.highlighted
    return "" if place is None else str(listing.get_option_at_index(place).prompt).casefold()


# Going on


async def test_a_stopped_reply_goes_on_beside_itself(service: ScriptedService) -> None:
    service.scripts = [Script(("```py\nx = 1\n",), may_end=threading.Event()), Script(("y = 2\n```\n",))]
    async with chatting(service) as chat:
        await chat.send("count")
        await chat.until(lambda: chat.view.turn and chat.view.turn.text)
        await chat.press("escape")
        await chat.settled()
        assert "F10 goes on" in chat.meta()
        await chat.press("f10")
        await chat.until(lambda: len(service.requests) == 2)
        await chat.settled()
        assert chat.replies[-1].text == "```py\nx = 1\ny = 2\n```\n"
        assert [block.code for block in code_blocks(chat.replies[-1].text)] == ["x = 1\ny = 2"]
        assert "‹ 2/2 ›" in chat.meta()
        assert "goes on from" in chat.meta()
        await chat.press("left")
        await chat.until(lambda: "‹ 1/2 ›" in chat.meta())
        assert chat.replies[-1].text == "```py\nx = 1\n"


async def test_a_whole_reply_does_not_go_on(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.press("f10")
        assert "no reply to go on with" in chat.toasts
        await chat.ask("hello")
        await chat.press("f10")
        await chat.until(lambda: "ended by itself" in chat.toasts)
        assert len(service.requests) == 1


# Editing


async def test_an_edited_message_stands_beside_the_first(service: ScriptedService) -> None:
    service.scripts = [Script(("one",)), Script(("two",)), Script(("three",))]
    async with chatting(service) as chat:
        await chat.ask("first")
        await chat.ask("second")
        chat.composer.put("half a thought")
        await chat.press("tab", "up", "up", "up")
        assert chat.app.screen.focused is questions(chat)[0]
        await chat.press("enter")
        assert chat.composer.text == "first"
        assert "Editing" in chat.seen("WritingLine")
        chat.composer.put("first, but better")
        await chat.press("enter")
        await chat.until(lambda: len(service.requests) == 3)
        await chat.settled()
        assert [view.text for view in questions(chat)] == ["first, but better"]
        assert [view.text for view in chat.replies] == ["three"]
        assert chat.composer.text == "half a thought"
        assert not chat.view.writing_line.display
        await chat.until(lambda: "‹ 2/2 ›" in str(questions(chat)[0].render()))
        chat.composer.put("")
        await chat.press("tab", "up", "left")
        await chat.until(lambda: [view.text for view in questions(chat)] == ["first", "second"])
        assert "‹ 1/2 ›" in str(questions(chat)[0].render())


async def test_a_click_on_the_switch_goes_to_the_other_message(service: ScriptedService) -> None:
    service.scripts = [Script(("one",)), Script(("two",)), Script(("three",))]
    async with chatting(service) as chat:
        await chat.ask("first")
        await chat.press("ctrl+r")
        await chat.until(lambda: len(service.requests) == 2)
        await chat.settled()
        at = Content(chat.meta()[: chat.meta().index("‹")]).cell_length
        await chat.pilot.click(chat.replies[0].query_one(".meta"), offset=(at, 0))
        await chat.until(lambda: "‹ 1/2 ›" in chat.meta())
        await chat.press("alt+e")
        chat.composer.put("second")
        await chat.press("enter")
        await chat.until(lambda: len(service.requests) == 3)
        await chat.settled()
        view = questions(chat)[0]
        await chat.until(lambda: "‹ 2/2 ›" in str(view.render()))
        await chat.rest()
        inside = view.content_region.offset - view.region.offset
        await chat.pilot.click(view, offset=(inside.x, inside.y + view.content_size.height - 1))
        await chat.until(lambda: [view.text for view in questions(chat)] == ["first"])


async def test_leaving_an_edit_changes_nothing(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.ask("first")
        chat.composer.put("being written")
        await chat.press("alt+e")
        assert chat.composer.text == "first"
        await chat.press("escape")
        assert chat.composer.text == "being written"
        assert not chat.view.writing_line.display


async def test_an_edit_that_fails_comes_back_with_the_conversation(service: ScriptedService) -> None:
    service.scripts = [Script(("one",)), Script(fails_before=HostUnavailable("the host is gone"))]
    async with chatting(service) as chat:
        await chat.ask("first")
        await chat.press("alt+e")
        chat.composer.put("better")
        await chat.press("enter")
        await chat.until(lambda: chat.composer.text == "better")
        await chat.until(lambda: [view.text for view in questions(chat)] == ["first"])


# Quoting and attaching


async def test_a_reply_is_quoted(service: ScriptedService) -> None:
    service.scripts = [Script(("one\n\ntwo",))]
    async with chatting(service) as chat:
        await chat.ask("hello")
        await chat.press(*"Hm", "alt+q")
        assert chat.composer.text == "Hm\n> one\n>\n> two\n"
        assert chat.composer.has_focus


async def test_a_file_is_attached_as_quoted_data(service: ScriptedService, tmp_path: Path) -> None:
    file = tmp_path / "my notes.py"
    file.write_text("x = '```'\n" * 3)
    async with chatting(service) as chat:
        chat.composer.put(f"/attach {file}")
        await chat.press("enter")
        await chat.until(lambda: "⟦my notes.py: 30 characters⟧" in chat.composer.text)
        assert "x = " not in chat.composer.text
        await chat.press(*"why?", "enter")
        await chat.until(lambda: service.requests)
        text = str(service.requests[0].text)
        assert text.startswith("`my notes.py`:\n\n````py\nx = ")
        assert text.endswith("````\n\nwhy?")
        assert code_blocks(text)[0].code == file.read_text().rstrip("\n")
        await chat.settled()
        chat.composer.put("/attach /no/such/file")
        await chat.press("enter")
        await chat.until(lambda: "no file /no/such/file" in chat.toasts)


def test_what_cannot_be_attached(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "zero.txt").write_bytes(b"a\x00b")
    (tmp_path / "large.txt").write_bytes(b"x" * 2_000_001)
    for name, why in (("picture.png", "not UTF-8"), ("zero.txt", "zero bytes"), ("large.txt", "larger than")):
        with pytest.raises(UsageError, match=why):
            read_file(str(tmp_path / name))
    with pytest.raises(UsageError, match="not a file"):
        read_file(str(tmp_path))
    with pytest.raises(NotFound):
        read_file(str(tmp_path / "none"))


def test_a_quotation_is_lines() -> None:
    assert quoted("\na\n\n> b\n") == "> a\n>\n> > b"


# Copying


async def test_a_code_block_is_copied_by_itself(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TMUX", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    service.scripts = [Script(("Try:\n```py\nx = 1\n```\nor\n```sh\nls\n```",))]
    async with chatting(service) as chat:
        await chat.ask("hello")
        await chat.press("ctrl+s")
        assert chat.app.clipboard.startswith("Try:")
        await chat.until(lambda: "handed to the terminal" in chat.toasts)
        assert "1 py, 1 line" in chat.seen("ChoiceBar")
        await chat.press("1")
        assert chat.app.clipboard == "x = 1"
        await chat.press("alt+c")
        assert chat.app.clipboard == "ls"
        chat.composer.put("/code 1")
        await chat.press("enter")
        await chat.until(lambda: chat.app.clipboard == "x = 1")
        chat.composer.put("/code 3")
        await chat.press("enter")
        await chat.until(lambda: "no such code block" in chat.toasts)


# Commands by name


async def test_commands_are_offered_completed_and_run(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.press("slash")
        await chat.until(lambda: "/help" in offered(chat))
        await chat.press("v", "e")
        await chat.until(lambda: offered(chat).splitlines()[0].startswith("/versions"))
        await chat.press("tab")
        assert chat.composer.text == "/versions "
        await chat.press("escape")
        chat.composer.put("/hel")
        await chat.press("enter")
        await chat.until(lambda: type(chat.app.screen).__name__ == "HelpScreen")
        await chat.press("escape")
        assert chat.composer.text == ""
        assert not service.requests


async def test_up_and_down_choose_among_the_offers(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.press("slash", "c", "o")
        await chat.until(lambda: len(offered(chat).splitlines()) > 2)
        names = [line.split()[0] for line in offered(chat).splitlines()]
        await chat.press("down", "down", "up", "tab")
        assert chat.composer.text == f"{names[1]} "


async def test_what_is_no_command_is_said_or_sent(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        chat.composer.put("/nonsense")
        await chat.press("enter")
        await chat.until(lambda: "no command /nonsense" in chat.toasts)
        assert chat.composer.text == "/nonsense"
        await chat.ask(" /nonsense")
        await chat.ask("/etc/hosts is what?")
        assert [request.text for request in service.requests] == [" /nonsense", "/etc/hosts is what?"]


async def test_the_palette_finds_commands_by_any_word(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.press("ctrl+p")
        await chat.until(lambda: isinstance(chat.app.screen, CommandPalette))
        await chat.press(*"roll")
        await chat.until(lambda: "roll back" in first_found(chat))
        await chat.press("escape")
        await chat.press("ctrl+p", *"theme light")
        await chat.until(lambda: "light" in first_found(chat))
        await chat.press("enter", "enter")
        await chat.until(lambda: chat.app.theme == THEMES["light"].name)
        assert service.preferences().theme == "light"


async def test_a_theme_is_chosen_by_name_and_kept(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        chat.composer.put("/theme contrast")
        await chat.press("enter")
        await chat.until(lambda: chat.app.theme == THEMES["contrast"].name)
        chat.composer.put("/theme purple")
        await chat.press("enter")
        await chat.until(lambda: "no theme 'purple'" in chat.toasts)
    async with chatting(service) as chat:
        assert chat.app.theme == THEMES["contrast"].name


# Keys of one's own


async def test_keys_can_be_chosen(service: ScriptedService) -> None:
    settings.put(service.store, settings.KEYS, {"versions": "ctrl+f12", "theme": "ctrl+f11", "copy": "x"})
    async with chatting(service, (120, 30)) as chat:
        await chat.until(lambda: "copy=x" in chat.toasts)
        await chat.press("f3")
        assert type(chat.app.screen).__name__ == "ChatScreen"
        await chat.press("ctrl+f12")
        await chat.until(lambda: type(chat.app.screen).__name__ == "AdaptersScreen")
        await chat.press("escape")
        await chat.press("ctrl+f11")
        await chat.until(lambda: "Which colours" in chat.seen("ChoiceBar"))
        await chat.press("2")
        await chat.until(lambda: chat.app.theme == THEMES["light"].name)
        assert "^F12 versions" in chat.seen("KeyLine")


def test_every_command_has_a_name_of_its_own() -> None:
    names = [command.name for command in (*CHAT, *CONVERSATION)]
    assert len(set(names)) == len(names)
    keys = [key for command in (*CHAT, *CONVERSATION) for key in command.keys.split(",") if key]
    assert len(set(keys)) == len(keys)


def test_chosen_keys_are_shown_as_people_write_them() -> None:
    versions = next(each for each in chosen(CHAT, {"versions": "ctrl+v,alt+f3"}) if each.name == "versions")
    assert versions.shown == "^V, Alt+F3"
    assert misnamed({"versions": "ctrl+v", "nothing": "f1", "good": "enter"}) == ["nothing", "good=enter"]


# Drafts and history


async def test_a_draft_outlives_the_chat(service: ScriptedService) -> None:
    conversation, _ = service.say("one", "two")
    async with chatting(service) as chat:
        chat.composer.put("for the empty page")
        await chat.rest()
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies)
        chat.composer.post_message(events.Paste("y" * 20_000))
        await chat.press("!")
        await chat.until(lambda: service.draft(conversation).endswith("!"))
        assert service.draft(conversation) == "y" * 20_000 + "!"
    async with chatting(service) as chat:
        await chat.until(lambda: chat.composer.text == "for the empty page")
        chat.view.open(conversation)
        await chat.until(lambda: "20,001 characters" in chat.composer.text)
        await chat.press("enter")
        await chat.until(lambda: service.requests)
        await chat.settled()
        await chat.until(lambda: service.draft(conversation) == "")


async def test_what_is_typed_just_before_the_end_is_kept(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.press(*"almost")
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    assert service.draft(None) == "almost"


async def test_an_incognito_draft_is_never_written(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Short, so that what is kept by the pause in the typing would be there long before the chat ends.
    monkeypatch.setattr("app.tui.open_conversation.PAUSE", 0.01)
    conversation, _ = service.say("one", "two")
    async with chatting(service) as chat:
        chat.view.incognito = True
        await chat.press(*"secret")
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies)
        await chat.press(*"also secret")
        await chat.pilot.pause(0.1)
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    assert service.store.conn.execute("SELECT count(*) FROM drafts").fetchone()[0] == 0


async def test_a_draft_goes_with_its_conversation(service: ScriptedService) -> None:
    conversation, _ = service.say("one", "two")
    service.keep_draft(conversation, "half a thought")
    service.delete_conversation(conversation)
    assert service.draft(conversation) == ""
    service.keep_draft(conversation, "too late")
    assert service.draft(conversation) == ""


async def test_what_was_written_in_other_conversations_comes_back(service: ScriptedService) -> None:
    service.say("an old question", "an answer")
    conversation, _ = service.say("here", "an answer")
    imported = conversations.create(service.store, "imported", "chatgpt")
    conversations.append_user(service.store, imported, "somebody else's words", None)
    async with chatting(service) as chat:
        await chat.until(lambda: chat.transcript.query(Welcome) and chat.view._written)
        await chat.press("up")
        assert chat.composer.text == "here"
        await chat.press("up")
        assert chat.composer.text == "an old question"
        await chat.press("up")
        assert chat.composer.text == "an old question"
        chat.composer.put("")
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies)
        await chat.press("up", "up")
        assert chat.composer.text == "an old question"


async def test_the_chat_opens_with_a_conversation_and_leaves_other_drafts_alone(
    service: ScriptedService,
) -> None:
    conversation, _ = service.say("an old question", "an old answer")
    service.keep_draft(None, "for the empty page")
    service.keep_draft(conversation, "for this one")
    app = MynahApp(service, conversation)
    async with app.run_test(size=(80, 24)) as pilot:
        chat = Chat(app, pilot, service)
        await chat.until(lambda: chat.replies and chat.composer.text == "for this one")
        assert chat.replies[-1].text == "an old answer"
        chat.composer.put("")
        await chat.ask("and now?")
        assert service.requests[-1].conversation == conversation
        await chat.press("ctrl+n")
        await chat.until(lambda: chat.composer.text == "for the empty page")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("notes one.md", "notes two.md", "zebra.txt", ".hidden"):
        (tmp_path / name).write_text(f"text of {name}", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "[b].md").write_text("inside", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_path_is_completed_as_far_as_it_is_certain(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(files))
    assert complete("z") == Completion("zebra.txt", ())
    assert complete("n") == Completion("notes ", ("notes one.md", "notes two.md"))
    assert complete("fo") == Completion("folder/", ())
    assert complete("folder/") == Completion("folder/[b].md", ())
    assert complete("") == Completion("", ("folder/", "notes one.md", "notes two.md", "zebra.txt"))
    assert complete(".") == Completion(".hidden", ())
    assert complete(f"{files}/z") == Completion(f"{files}/zebra.txt", ())
    assert complete("~") == Completion("~/", ())
    assert complete("~/z") == Completion("~/zebra.txt", ())
    for nothing in ("nowhere/x", "q", "zebra.txt/a", "a\0b/"):
        assert complete(nothing) == Completion(nothing, ())


async def test_the_path_of_a_file_is_completed_behind_the_command(
    service: ScriptedService, files: Path
) -> None:
    async with chatting(service) as chat:
        chat.composer.put("/attach n")
        await chat.press("tab")
        assert chat.composer.text == "/attach notes "
        await chat.until(lambda: "notes one.md\nnotes two.md" in chat.seen("CommandList"))
        await chat.press("t", "tab")
        assert chat.composer.text == "/attach notes two.md"
        await chat.until(lambda: not chat.app.screen.query_one(CommandList).display)
        await chat.press("enter")
        await chat.until(lambda: "notes two.md: 20 characters" in chat.composer.text)
        assert "text of notes two.md" in chat.composer.message
        # Behind another command Tab means what it always does.
        chat.composer.put("/theme d")
        await chat.press("tab")
        assert chat.composer.text == "/theme d"


async def test_the_window_for_a_file_completes_too(service: ScriptedService, files: Path) -> None:
    async with chatting(service) as chat:
        await chat.press("alt+a", "n", "tab")
        await chat.until(lambda: "notes one.md  notes two.md" in chat.seen(".explanation"))
        await chat.press("o", "tab")
        assert chat.app.screen.query_one(Input).value == "notes one.md"
        await chat.press("enter")
        await chat.until(lambda: "text of notes one.md" in chat.composer.message)
