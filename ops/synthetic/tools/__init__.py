"""The tool workers, each of which is a module with a function `answer(task) -> str`.

A tool reads a `Task` and writes text. It has one skill, and says so if a request needs another one. It never reads the
correct answer.
"""

from __future__ import annotations

from collections.abc import Callable

from ops.synthetic.reading import Task
from ops.synthetic.tools import algebraist, analyst, editor, guesser, librarian, programmer

TOOLS: dict[str, Callable[[Task], str]] = {
    "algebraist": algebraist.answer,
    "librarian": librarian.answer,
    "analyst": analyst.answer,
    "programmer": programmer.answer,
    "editor": editor.answer,
    "guesser": guesser.answer,
}
"""The function of each tool by its name."""
