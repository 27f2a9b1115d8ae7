"""The tool workers: one file per tool with one function `answer(task) -> str`.

What belongs here: tools that read a `Task` and write text. A tool has one skill and reports a request outside it; it
never reads a gold answer.
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
