"""A subtask that quotes a question with LaTeX keeps the exact text of the question."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.workflow.grammar import Workflow, parse

MATH = Path(__file__).parents[4] / "shared" / "benchmarks" / "math_train.jsonl.gz"

COMMANDS = re.findall(
    r"\\\S+",
    r"""
\allowbreak \alpha \angle \arccos \arcsin \arctan \arraystretch \ast \backslash \bar \begin \beta \bf \big \bigcirc
\bigtriangleup \binom \bold \bot \bowtie \boxed \bullet \footnotesize \forall \frac \frown \nabla \ne \neq \noalign
\not \notin \nu \N \rangle \rbrace \rceil \renewcommand \rfloor \rho \right \rightarrow \rm \rvert \tan \tau \text
\textbf \textit \textnormal \textrm \tfrac \theta \times \tiny \to \triangle \underbrace \underline \uparrow \Upsilon
\varphi \vdots \vec \vspace \xi \xrightarrow \{ \} \[ \] \( \) \$ \% \! \# \, \; \: \& \_ \|
""",
)
"""LaTeX commands of MATH's training questions that begin like an escape sequence of Python, and escaped signs."""


def pasted(text: str) -> str:
    """Return the text on one line as a model pastes it: quotes and new lines escaped, backslashes unchanged."""
    return '"' + text.replace('"', '\\"').replace("\r", "\\r").replace("\t", "\\t").replace("\n", "\\n") + '"'


def pasted_on_lines(text: str) -> str:
    quotes = "'" * 3
    return f"{quotes}{text}{quotes}"


def escaped(text: str) -> str:
    """Return the text escaped as Python and JSON require."""
    return json.dumps(text, ensure_ascii=False)


def read(string: str) -> str | None:
    workflow = parse(f"model_id = [0]\nsubtasks = [{string}]\naccess_list = [[]]", offered=1).workflow
    return workflow.steps[0].subtask if workflow else None


@pytest.mark.parametrize("quote", [pasted, pasted_on_lines, escaped])
def test_a_command_stays_as_it_stands(quote: Callable[[str], str]) -> None:
    for command in COMMANDS:
        text = f"Find {command}{{x}} of ${command} y$, “{command}”."
        assert read(quote(text)) == text, command


@pytest.mark.parametrize(
    "text",
    [
        "First find \\frac{1}{2}.\nThen say \"no\".\tDone.",
        "\\begin{align*}\n1 &= a \\\\\n2 &= b \\\\[2pt]\n\\end{align*}",
        "x\nu and \\nu",
        "\\\\",
        "\\x",
        "\\u00e9 is é",
        "C:\\new\\table\\run",
        "\b\f\v\a\0\x1b",
        "\nu\neq\text\rho\right",
    ],
)
def test_rendered_workflows_are_parsed_back(text: str) -> None:
    workflow = Workflow.single(0, text)
    assert parse(workflow.render(), offered=1).workflow == workflow


def questions() -> list[str]:
    if not MATH.is_file():
        pytest.skip("no ../shared/benchmarks/math_train.jsonl.gz on this machine")
    with gzip.open(MATH, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["question"] for line in lines]


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.long)])
def test_every_training_question_of_math_is_read_as_it_is_quoted(step: int) -> None:
    every = questions()
    assert len(every) == 7500
    every = every[::step]
    for text in every:
        workflow = Workflow.single(0, text)
        assert parse(workflow.render(), offered=1).workflow == workflow
        assert read(pasted_on_lines(text)) == text
    wrong = [text for text in every if read(pasted(text)) != text]
    # A new line before "u" or "e" looks like \nu or \ne once it is written as an escape, and one question has a tab
    # where its \text was: no rule can tell these.
    assert len(wrong) <= 7
    assert all(re.search(r"\n[ue](?![A-Za-z])|\textbf", text) for text in wrong)
