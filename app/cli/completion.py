"""`mynah completion`: the few lines that make a shell complete our commands, options and settings."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from app.cli.output import put

SHELLS = ("bash", "zsh", "fish")
_WHERE = {
    "bash": 'eval "$(mynah completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(mynah completion zsh)"   in ~/.zshrc, after compinit',
    "fish": "mynah completion fish > ~/.config/fish/completions/mynah.fish",
}


@click.command(epilog="\b\n" + "\n".join(f"{shell:<5} {line}" for shell, line in _WHERE.items()))
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes SHELL complete `mynah`.

    Run or load once per shell:
    """
    from app.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "mynah", "_MYNAH_COMPLETE")
    # Not `source()`: that of bash starts one to look at its version, which is none of ours to judge.
    put(script.source_template % script.source_vars())
