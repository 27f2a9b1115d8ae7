"""Parse the chat messages that a tool worker receives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

AnswerForm = Literal["boxed", "letter", "short", "program"]
"""The form in which a question asks for its answer."""

_MARK = "\n\nSubtask: "
_CHOICE = re.compile(r"^([A-J])\) (.*)$", re.MULTILINE)
_FORMS: tuple[tuple[str, AnswerForm], ...] = (
    (r"\boxed{", "boxed"),
    ('"Answer: X"', "letter"),
    ("```python", "program"),
)


class Task(NamedTuple):
    """One request to a tool."""

    question: str
    """The text of the question, without its choices and without the line that asks for a form of the answer."""
    choices: dict[str, str]
    """The text of each choice by its letter."""
    form: AnswerForm
    """The form in which the answer is asked for."""
    subtask: str
    """The subtask in lower case."""
    context: tuple[str, ...]
    """The responses of the visible earlier steps, beginning with the oldest."""

    def marked_lines(self, mark: str) -> list[str]:
        """Return the texts that earlier workers wrote after `MARK:`, beginning with the oldest."""
        return [
            line.removeprefix(f"{mark}: ").strip()
            for response in self.context
            for line in response.splitlines()
            if line.startswith(f"{mark}: ")
        ]


def parse_task(messages: Sequence[Mapping[str, str]]) -> Task:
    """Split the messages that a step's worker receives into a task. Text without marks is part of the question."""
    users = [message["content"] for message in messages if message["role"] == "user"]
    opening, _, subtask = (users[0] if users else "").rpartition(_MARK)
    if not opening:
        opening, subtask = subtask, ""
    if len(users) > 1:
        subtask = users[-1].removeprefix("Subtask: ")
    body, _, last = opening.rpartition("\n")
    form: AnswerForm = next((form for mark, form in _FORMS if mark in last), "short")
    if body == "" or not last.startswith(("Give the ", "Finish with ")):
        body = opening
    return Task(
        question=_CHOICE.sub("", body).strip(),
        choices={letter: text.strip() for letter, text in _CHOICE.findall(body)},
        form=form,
        subtask=subtask.strip().lower(),
        context=tuple(message["content"] for message in messages if message["role"] == "assistant"),
    )


_ANSWER = re.compile(r"```python\n((?:.|\n)*?)```|\\boxed\{(.+)\}|^Answer: (.+)$", re.MULTILINE)


def find_answers(task: Task) -> list[str]:
    """Return the last answer of each visible response that has one, beginning with the oldest response."""
    last = (list(_ANSWER.finditer(response))[-1:] for response in task.context)
    return [
        next(group for group in match.groups() if group is not None).strip() for matches in last for match in matches
    ]


def format_answer(task: Task, value: str) -> str:
    """Return a final answer in the form that the question asks for."""
    return f"\\boxed{{{value}}}" if task.form == "boxed" else f"Answer: {value}"
