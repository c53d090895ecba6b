"""Every key of the chat, in one table: the bindings, the footer, the help page and the README come from it.

The composer always has the focus, so a command is Ctrl and a letter that the text area leaves free, or a
function key; never Ctrl+I, M, H or [, which terminals cannot tell from Tab, Enter, Backspace and Escape.
Rating has function keys first, because Ctrl+B is what tmux listens to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from textual.binding import Binding

from app.tui.key_line import Key


@dataclass(frozen=True)
class Command:
    """One command: Textual's key names, what the keys are called, a word for the footer, a line for the help."""

    keys: str
    shown: str
    action: str
    footer: str
    help: str
    argument: str = ""

    @property
    def name(self) -> str:
        """What is typed behind a slash, and what a key is chosen for in the settings."""
        return self.footer.replace(" ", "-")

    @property
    def binding(self) -> Binding:
        """As Textual wants it, ahead of what the text area does with these keys."""
        return Binding(self.keys, self.action, self.help, show=False, priority=True, id=self.name)

    @property
    def key(self) -> Key:
        """As the bottom line shows it."""
        return Key(self.shown.split(",")[0], self.footer, self.action)


CHAT: tuple[Command, ...] = (
    Command("f1", "F1", "app.help", "help", "this page"),
    Command("ctrl+n", "^N", "new_chat", "new", "a new conversation"),
    Command("ctrl+o,f2", "^O, F2", "conversations", "chats", "the conversations: open, find, rename, delete"),
    Command(
        "ctrl+f",
        "^F",
        "find",
        "find",
        "find any message by words, rating, version, tag or date, and go there",
    ),
    Command("ctrl+r,f5", "^R, F5", "regenerate", "again", "answer again; the first answer is kept beside it"),
    Command("f6,ctrl+g", "F6, ^G", "rate_up", "good", "the reply was good"),
    Command("f7,ctrl+b", "F7, ^B", "rate_down", "bad", "the reply was not good; one key more says why"),
    Command("f8,ctrl+t", "F8, ^T", "correct", "correct", "write the reply as it should have been"),
    Command("ctrl+s", "^S", "copy_reply", "copy", "copy the reply"),
    Command(
        "f12,alt+w",
        "F12, Alt+W",
        "story",
        "story",
        "what became of the reply: signals, verdict, lesson, versions, decisions",
    ),
    Command("f3", "F3", "versions", "versions", "what was learned: versions, gate results, use, roll back"),
    Command("ctrl+l,f4", "^L, F4", "learn_now", "learn", "learn now from what is waiting"),
    Command("f9", "F9", "rollback", "undo learning", "back to the version before; one key takes it back"),
    Command(
        "alt+i",
        "Alt+I",
        "incognito",
        "incognito",
        "a conversation that nothing is kept of and nothing learned from",
    ),
    Command(
        "f11,alt+v",
        "F11, Alt+V",
        "privacy",
        "privacy",
        "what this conversation may be used for: history, memory, learning",
    ),
    Command("ctrl+q", "^Q", "quit", "quit", "quit; learning goes on, and nothing is lost"),
)

CONVERSATION: tuple[Command, ...] = (
    Command("f10,alt+g", "F10, Alt+G", "go_on", "continue", "go on with a reply that was stopped or cut"),
    Command("alt+e", "Alt+E", "edit", "edit", "change your message; the first one is kept beside it"),
    Command("alt+q", "Alt+Q", "quote", "quote", "quote the selection, or the reply"),
    Command(
        "alt+a",
        "Alt+A",
        "screen.attach",
        "attach",
        "put a text file into the message, as a quotation",
        "FILE",
    ),
    Command(
        "alt+c", "Alt+C", "screen.copy_code", "code", "copy a code block of the reply, the last one", "[N]"
    ),
    Command("alt+k", "Alt+K", "screen.known", "known", "what I know of you: edit, switch off, forget"),
    Command("alt+u", "Alt+U", "screen.unremember", "unremember", "forget what was just remembered"),
    Command("ctrl+p", "^P", "screen.palette", "commands", "find a command by any word"),
    Command("", "", "screen.rename", "rename", "another title for this conversation"),
    Command(
        "",
        "",
        "screen.pin_conversation",
        "pin",
        "keep this conversation at the top of the list, or no longer",
    ),
    Command("", "", "screen.archive", "archive", "put this conversation away, or bring it back"),
    Command("", "", "screen.tags", "tags", "words that sort this conversation"),
    Command(
        "", "", "screen.self_view", "self", "what Mynah is bad at, what it is trying, and whether it worked"
    ),
    Command("", "", "screen.forget", "forget", "forget this conversation, after a look at what that undoes"),
    Command(
        "",
        "",
        "screen.strength",
        "strength",
        "how strongly what was learned speaks in this conversation, from 0 to 1",
        "[0-1]",
    ),
    Command("", "", "screen.base", "base", "let the base model answer in this conversation, or no longer"),
    Command(
        "", "", "screen.lesson", "lesson", "teach it something in two minutes, step by step, or leave that"
    ),
    Command("alt+m", "Alt+M", "screen.models", "models", "the model that answers: choose another, fetch one"),
    Command("", "", "screen.theme", "theme", "colours: dark, light or contrast", "[NAME]"),
)
"""What there is to do with a conversation beyond the bottom line; some of it has no key unless one is chosen."""

STOP = Key("Esc", "stop", "stop")

WRITING: tuple[tuple[str, str], ...] = (
    ("Enter", "send"),
    ("^J, Alt+Enter", "a new line (Shift+Enter where the terminal can tell)"),
    ("↑ at the start", "what you wrote before"),
    ("← → in an empty line", "the other answers to the same question"),
    ("Tab, Shift+Tab", "pick an earlier message: rate, correct, copy and the arrows then mean that one"),
    ("Enter on a picked one", "edit your message, or go on with a reply that was cut"),
    ("/ and a word", "a command by its name; Tab completes, Enter runs"),
    ("PgUp, PgDn", "scroll"),
    ("Esc", "stop the reply; what was said so far is kept"),
    ("^C", "stop the reply; twice with none running, quit"),
    ("^Z", "to the shell, and `fg` comes back; Alt+Z takes back what was typed"),
)


def chosen(commands: tuple[Command, ...], keys: Mapping[str, str]) -> tuple[Command, ...]:
    """The commands with the owner's own keys, by name, in the place of those they come with."""
    return tuple(
        replace(each, keys=keys[each.name], shown=_called(keys[each.name])) if each.name in keys else each
        for each in commands
    )


def misnamed(keys: Mapping[str, str]) -> list[str]:
    """The names in the owner's choice that no command has, and the keys that would keep one from typing."""
    known = {command.name for command in (*CHAT, *CONVERSATION)}
    wrong = [name for name in keys if name not in known]
    return wrong + [f"{name}={value}" for name, value in keys.items() if name in known and not _usable(value)]


def _usable(keys: str) -> bool:
    parts = [key.strip() for key in keys.split(",")]
    return all(len(part) > 1 and ("+" in part or (part[:1] == "f" and part[1:].isdigit())) for part in parts)


def _called(keys: str) -> str:
    names = []
    for key in keys.split(","):
        *held, last = key.strip().split("+")
        last = last.upper() if len(last) == 1 or last[1:].isdigit() else last.capitalize()
        names.append(f"^{last}" if held == ["ctrl"] else "+".join([*map(str.capitalize, held), last]))
    return ", ".join(names)
