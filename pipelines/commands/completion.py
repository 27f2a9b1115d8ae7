"""`podium completion`: the script with which a shell completes commands, recipes and pools."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell's completion script.

    For bash: echo 'eval "$(podium completion bash)"' >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None  # click's own choices
    click.echo(script(ctx.find_root().command, {}, "podium", "_PODIUM_COMPLETE").source())
