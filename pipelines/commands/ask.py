"""`podium ask`: ask the champion, and show the workflow behind its answer."""

from __future__ import annotations

import sys

import click

from ops.core.workspace import Workspace


@click.command()
@click.argument("question")
@click.option("--grader", type=click.Choice(["text", "math", "choice", "code"]), help="Form of the answer (text).")
@click.option("--choice", "choices", multiple=True, metavar="TEXT", help="A choice; give it repeatedly.")
def ask(question: str, grader: str | None, choices: tuple[str, ...]) -> None:
    """Ask the champion a question.

    Exit code 0 with an answer, 1 without one.
    """
    from rich.console import Console

    from ops.release import ask as champion

    response = champion.ask(Workspace.find(), question, {"grader": grader, "choices": list(choices)})
    champion.show(response, Console())
    sys.exit(0 if response.get("status") == "completed" else 1)
