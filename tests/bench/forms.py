"""`python -m tests.bench.forms`, what `make forms` calls: the corpus of forms, as a table in docs/quality.md.

What belongs here: our verdicts on the forms of `tests/unit/grading/forms/`, bare math-verify's beside
them, and both on forms of real problems (../shared). What does not: the forms themselves.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from ops.grading import grade, grade_many
from ops.problem import Problem
from ops.workspace import Workspace
from pipelines.pages import write_between
from tests.unit.grading.forms import Form, load, wrapped, wrappings

FILE = Path("docs") / "quality.md"
MARK = "<!-- made by `make forms` -->"
ROWS = Path("..") / "shared" / "benchmarks"
PROBLEMS = 180
SEED = 0
EQUATIONS = ("AB = {answer}", "f(3) = {answer}", "x = {answer}", "m+n = {answer}", r"\angle APC = {answer}")
BOX = r"So it is $\boxed{{answer}}$."


class Verdict(NamedTuple):
    """Whether a response was accepted by us and by bare math-verify (None: not asked), and the seconds of each."""

    ours: bool
    reference: bool | None = None
    ours_s: float = 0.0
    reference_s: float = 0.0


class Judged(NamedTuple):
    """One form and its verdict; `kind` is the row of the table."""

    kind: str
    right: bool
    verdict: Verdict


def bare_math_verify(gold: str, response: str) -> bool:
    """math-verify as its README has it: the gold answer as a formula, the response as it stands, all defaults."""
    from math_verify import parse, verify

    return bool(verify(parse(f"${gold}$"), parse(response)))


def timed(call: Callable[[], bool]) -> tuple[bool, float]:
    began = time.perf_counter()
    verdict = call()
    return verdict, time.perf_counter() - began


def both(problem: Problem, response: str) -> Verdict:
    """Ours and bare math-verify's, one after the other, so that a loaded machine slows both."""
    ours, ours_s = timed(lambda: grade(problem, response).correct)
    reference, reference_s = timed(lambda: bare_math_verify(problem.answer, response))
    return Verdict(ours, reference, ours_s, reference_s)


def judge_corpus(forms: list[Form]) -> list[Judged]:
    """Every form of the corpus under its grader; mathematics under math-verify as well."""
    others = [form for form in forms if form.problem.grader != "math"]
    grades = grade_many((form.problem, form.response) for form in others)
    judged = [Judged(form.kind, form.right, Verdict(grade.correct)) for form, grade in zip(others, grades, strict=True)]
    mathematics = (form for form in forms if form.problem.grader == "math")
    return [Judged(form.kind, form.right, both(form.problem, form.response)) for form in mathematics] + judged


# ── forms of real problems ───────────────────────────────────────────────────


def real_problems(file: Path) -> list[Problem]:
    """A seeded sample of MATH's problems."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row["answer"].strip()]
    return [
        Problem(row["id"], "math500", "math", "test", row["question"], row["answer"], "math")
        for row in random.Random(SEED).sample(rows, PROBLEMS)
    ]


def judge_real(problems: list[Problem], wrappings: Iterable[str]) -> list[Judged]:
    """Gold answers in every wrapping and behind a name; each problem's wrong answer is the next one's gold."""
    judged = []
    templates = [("wrappings", wrapping) for wrapping in wrappings]
    templates += [("equations in the box", wrapped(BOX, equation)) for equation in EQUATIONS]
    following = [*problems[1:], problems[0]]
    for kind, template in templates:
        for problem, other in zip(problems, following, strict=True):
            if kind != "wrappings" and ("=" in problem.answer or "," in problem.answer or "text" in problem.answer):
                continue
            judged.append(Judged(kind, True, both(problem, wrapped(template, problem.answer))))
            if kind == "wrappings" and not bare_math_verify(problem.answer, f"${other.answer}$"):
                judged.append(Judged(kind, False, both(problem, wrapped(template, other.answer))))
    return judged


# ── the table ────────────────────────────────────────────────────────────────


def cells(judged: list[Judged]) -> str:
    """Right and wrong forms, and how many of them we and math-verify accept."""
    columns = []
    for right in (True, False):
        verdicts = [row.verdict for row in judged if row.right is right]
        ours = sum(verdict.ours for verdict in verdicts)
        asked = [verdict.reference for verdict in verdicts if verdict.reference is not None]
        columns += [str(len(verdicts)), share(ours, len(verdicts)), share(sum(asked), len(asked)) if asked else "–"]
    return " | ".join(columns)


def share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.1f} %)" if total else "–"


def ratio(judged: list[Judged]) -> str:
    """Our seconds over bare math-verify's, for the same responses in the same run."""
    return f"{sum(row.verdict.ours_s for row in judged) / sum(row.verdict.reference_s for row in judged):.2f}"


HEADER = """| {0} | right forms | we accept | math-verify | wrong forms | we accept | math-verify |
| --- | --- | --- | --- | --- | --- | --- |"""


def report(forms: list[Form], corpus: list[Judged], real: list[Judged]) -> str:
    graders = {form.kind: form.problem.grader for form in forms}
    lines = [f"{len(forms)} forms.", "", HEADER.format("grader and kind")]
    for grader in dict.fromkeys(graders.values()):
        rows = [row for row in corpus if graders[row.kind] == grader]
        for kind in dict.fromkeys(row.kind for row in rows):
            name = kind.removeprefix(f"{grader}_").replace("_", " ")
            lines.append(f"| {grader}, {name} | {cells([row for row in rows if row.kind == kind])} |")
        lines.append(f"| **{grader}** | {cells(rows)} |")
    mathematics = [row for row in corpus if row.verdict.reference is not None]
    lines += ["", f"Our time over bare math-verify's on the mathematical forms: {ratio(mathematics)}."]
    if real:
        lines += ["", f"{PROBLEMS} problems of MATH (seed {SEED}):", "", HEADER.format("form")]
        for kind in dict.fromkeys(row.kind for row in real):
            lines.append(f"| {kind} | {cells([row for row in real if row.kind == kind])} |")
        lines += ["", f"Our time over bare math-verify's on these: {ratio(real)}."]
    return "\n".join(lines)


def main() -> int:
    """Judge every form, print the tables and write them between their marks."""
    logging.disable(logging.WARNING)
    root = Workspace.find().root
    forms = load()
    both(forms[0].problem, r"$\boxed{x + 1}$")  # imports and our worker's start are nobody's time
    grade(Problem("p", "forms", "math", "test", "?", "x+1", "math"), r"\boxed{1+x}")
    print(f"judging {len(forms)} forms …", flush=True)
    corpus = judge_corpus(forms)
    real: list[Judged] = []
    file = root / ROWS / "math_train.jsonl.gz"
    if file.is_file():
        print(f"judging {PROBLEMS} problems of MATH …", flush=True)
        real = judge_real(real_problems(file), wrappings("math_wrappings"))
    else:
        print(f"no real problems at {file}: their table is left out")
    text = report(forms, corpus, real)
    write_between(root / FILE, MARK, text)
    print(f"{text}\nwritten to {FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
