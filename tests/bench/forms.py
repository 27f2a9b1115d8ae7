"""Run `python -m tests.bench.forms` (`make forms`): the corpus of forms, written into docs/reference."""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path
from typing import NamedTuple

import psutil

from ops.core.documents import MEASUREMENTS, replace_marked_text
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.grading import grade, grade_many
from tests.bench.real_data import ROWS, json_lines
from tests.bench.row import sized
from tests.unit.grading.forms import Form, load, wrapped, wrappings

MARK = "<!-- made by `make forms` -->"
PROBLEMS = sized(180, 6)
SEED = 0
NAMES = ("AB", "f(3)", "x", "m+n", r"\angle APC")
BOX = r"So it is $\boxed{{answer}}$."


class Question(NamedTuple):
    """A response to judge; `kind` is its row of the table."""

    kind: str
    problem: Problem
    response: str
    right: bool


class Judged(NamedTuple):
    """Whether Podium's grader and bare math-verify (None: not asked) accepted a response."""

    kind: str
    right: bool
    ours: bool
    reference: bool | None = None


def bare_math_verify(gold: str, response: str) -> bool:
    """Judge with math-verify as in its README: the gold answer as a
    formula, the response unchanged, default settings.
    """
    from math_verify import parse, verify

    return bool(verify(parse(f"${gold}$"), parse(response)))


def cpu_s() -> float:
    """Return CPU seconds of this process and of its children, so that other load does not count."""
    processes = [psutil.Process(), *psutil.Process().children()]
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


def judge_mathematics(questions: list[Question]) -> tuple[list[Judged], float]:
    """Return verdicts of Podium's grader and of bare math-verify, and the ratio of their CPU seconds."""
    start = cpu_s()
    ours = [grade(question.problem, question.response).correct for question in questions]
    between = cpu_s()
    reference = [bare_math_verify(question.problem.answer, question.response) for question in questions]
    ratio = (between - start) / (cpu_s() - between)
    judged = [
        Judged(question.kind, question.right, *verdicts)
        for question, *verdicts in zip(questions, ours, reference, strict=True)
    ]
    return judged, ratio


def judge_others(forms: list[Form]) -> list[Judged]:
    """Judge choices, short text and programs."""
    grades = grade_many((form.problem, form.response) for form in forms)
    return [Judged(form.kind, form.right, grade.correct) for form, grade in zip(forms, grades, strict=True)]


# ── forms of real problems ───────────────────────────────────────────────────


def real_problems(file: Path) -> list[Problem]:
    """Return a seeded sample of MATH's problems."""
    rows = [row for row in json_lines(file) if row["answer"].strip()]
    return [
        Problem(row["id"], "math500", "math", "test", row["question"], row["answer"], "math")
        for row in random.Random(SEED).sample(rows, PROBLEMS)
    ]


def real_questions(problems: list[Problem]) -> list[Question]:
    """Return gold answers in every wrapping and after a name; each
    problem's wrong answer is the next problem's gold answer.
    """
    questions = []
    following = [*problems[1:], problems[0]]
    pairs = [(problem, other.answer) for problem, other in zip(problems, following, strict=True)]
    distinct = [pair for pair in pairs if not bare_math_verify(pair[0].answer, f"${pair[1]}$")]
    for template in wrappings("math_wrappings"):
        questions += [Question("wrappings", p, wrapped(template, p.answer), True) for p in problems]
        questions += [Question("wrappings", p, wrapped(template, other), False) for p, other in distinct]
    plain = [p for p in problems if not any(sign in p.answer for sign in ("=", ",", "text", "mbox"))]
    for name in NAMES:
        template = wrapped(BOX, name + " = {answer}")
        questions += [Question("equations in the box", p, wrapped(template, p.answer), True) for p in plain]
    return questions


# ── the table ────────────────────────────────────────────────────────────────


def cells(judged: list[Judged]) -> str:
    """Count right and wrong forms, and how many of them Podium's grader and math-verify accept."""
    columns = []
    for right in (True, False):
        rows = [row for row in judged if row.right is right]
        references = [row.reference for row in rows if row.reference is not None]
        columns += [str(len(rows)), share([row.ours for row in rows]), share(references)]
    return " | ".join(columns)


def share(accepted: list[bool]) -> str:
    return f"{sum(accepted)} ({100 * sum(accepted) / len(accepted):.1f} %)" if accepted else "–"


HEADER = """| {0} | right forms | we accept | math-verify | wrong forms | we accept | math-verify |
| --- | --- | --- | --- | --- | --- | --- |"""


def report(forms: list[Form]) -> str:
    """Return the corpus by grader and kind, then the real problems if their files exist."""
    graders = {form.kind: form.problem.grader for form in forms}
    mathematics = [form for form in forms if form.problem.grader == "math"]
    judged, ratio = judge_mathematics([Question(f.kind, f.problem, f.response, f.right) for f in mathematics])
    judged += judge_others([form for form in forms if form.problem.grader != "math"])
    lines = [f"{len(forms)} forms.", "", HEADER.format("grader and kind")]
    for grader in dict.fromkeys(graders.values()):
        rows = [row for row in judged if graders[row.kind] == grader]
        for kind in dict.fromkeys(row.kind for row in rows):
            name = kind.removeprefix(f"{grader}_").replace("_", " ")
            lines.append(f"| {grader}, {name} | {cells([row for row in rows if row.kind == kind])} |")
        lines.append(f"| **{grader}** | {cells(rows)} |")
    return "\n".join([*lines, "", f"Our CPU time over bare math-verify's on the mathematical forms: {ratio:.2f}."])


def real_report(file: Path) -> str:
    """Return the table of forms of real problems for Podium's grader and math-verify."""
    judged, ratio = judge_mathematics(real_questions(real_problems(file)))
    lines = [f"{PROBLEMS} problems of MATH (seed {SEED}):", "", HEADER.format("form")]
    kinds = dict.fromkeys(row.kind for row in judged)
    lines += [f"| {kind} | {cells([row for row in judged if row.kind == kind])} |" for kind in kinds]
    return "\n".join([*lines, "", f"Our CPU time over bare math-verify's on these: {ratio:.2f}."])


def main() -> int:
    """Judge every form, print the tables and write them between their markers."""
    logging.disable(logging.WARNING)
    root = Workspace.find().root
    forms = load()
    # Imports and the start of the worker process are not timed.
    bare_math_verify("x + 1", "$1 + x$")
    grade(Problem("p", "forms", "math", "test", "?", "x+1", "math"), r"\boxed{1+x}")
    print(f"judging {len(forms)} forms …", flush=True)
    text = report(forms)
    file = root / ROWS / "math_train.jsonl.gz"
    if file.is_file():
        print(f"judging {PROBLEMS} problems of MATH …", flush=True)
        text += f"\n\n{real_report(file)}"
    else:
        print(f"no real problems at {file}: their table is left out")
    replace_marked_text(root / MEASUREMENTS, MARK, text)
    print(f"{text}\nwritten to {MEASUREMENTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
