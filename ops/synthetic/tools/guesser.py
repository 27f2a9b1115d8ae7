"""The tool that guesses cheaply. Its answer always has the requested form and is seldom right."""

from __future__ import annotations

import hashlib
import re

from ops.synthetic.reading import Task, format_answer


def answer(task: Task) -> str:
    """Return a guess that depends on the question alone."""
    pick = int(hashlib.sha256(task.question.encode()).hexdigest()[:8], 16)
    if task.choices:
        return f"Answer: {sorted(task.choices)[pick % len(task.choices)]}"
    if task.form == "program":
        return "```python\nprint(input())\n```"
    if task.question.lower().startswith("true or false"):
        return format_answer(task, "True")
    numbers = re.findall(r"\d+(?:\.\d+)?", task.question)
    return format_answer(task, numbers[pick % len(numbers)] if numbers else "yes")
