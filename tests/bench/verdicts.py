"""`make verdicts` calls `python -m tests.bench.verdicts FILE`: the verdict on every answer at hand, as JSON lines.

`--against OLD` compares with an earlier file and lists the verdicts that changed. A change of a grader is
reviewed with this list: a wrong answer that is newly right is a defect.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.grading import configure, grade, grade_many
from ops.grading.answering import NEXT_QUESTION
from ops.quality.gold import format_gold_response
from tests.bench import gold
from tests.bench.forms import cpu_s
from tests.bench.outcomes import O1, statements
from tests.bench.real_data import ROWS, json_lines
from tests.bench.row import sized
from tests.unit.grading import forms

SEED = 0
MOST = sized(1_000_000, 100)
"""Maximum number of cases from each set of real rows."""
CROSSED, OTHERS = 500, 5
"""Gold answers of each set, and gold answers of other rows with which each is compared as wrong answers."""
HOSTILE = ("200!", "10^{400}", "e^{999}", r"\Gamma(999)", "0/0", r"\infty", "x")
"""Answers that must not equal any different gold answer: they overflow, are undefined, or name no value."""
LETTERS = ("Answer: {letter}", "The answer is ({letter}).", "Answer: ({letter}) {text}")
SETS = ("MATH train", "MATH500", "WebInstruct subset, train", "WebInstruct subset, test")
CHOICES = ("MMLU dev", "MMLU val", "MMLU test, 4,000")
SHOWN = 160


class Case(NamedTuple):
    """One response to judge; `right` is the expected verdict, None if it is unknown."""

    group: str
    name: str
    problem: Problem
    response: str
    right: bool | None


# ── cases ────────────────────────────────────────────────────────────────────


def cases(folder: Path, *, programs: bool = False) -> Iterator[Case]:
    """Return every case, group by group. `folder` contains the real rows; without it, their groups are left out."""
    yield from written_cases()
    if not folder.is_dir():
        return
    yield from published_cases(folder.parent / "outcomes")
    problems = {name: gold.load_set(folder, name).problems[:MOST] for name in SETS}
    for name, rows in problems.items():
        yield from gold_cases(name, rows)
        yield from crossed_cases(name, rows)
    yield from solution_cases(problems["MATH train"], folder / "math_train.jsonl.gz")
    yield from hostile_cases(problem for rows in problems.values() for problem in rows)
    for name in CHOICES:
        yield from letter_cases(name, gold.load_set(folder, name).problems[:MOST])
    if programs:
        yield from program_cases(O1)


def written_cases() -> Iterator[Case]:
    """Return the corpus and the forms of tests/unit/grading, whose verdicts are known."""
    for source, folder in (("corpus", forms.CORPUS), ("forms", forms.FOLDER)):
        for form in forms.load(folder):
            yield Case(f"{source} {form.kind}", form.why, form.problem, form.response, form.right)


def published_cases(folder: Path) -> Iterator[Case]:
    """Return real responses of models to MMLU-Pro and GSM8K; the expected verdict is the publisher's."""
    for row in json_lines(folder / "mmlu_pro" / "responses.jsonl.gz")[:MOST]:
        name, choices = str(row["question_id"]), tuple(map(str, row["options"]))
        problem = Problem(name, "mmlu", "mmlu", "test", row["question"], row["answer"], "choice", choices)
        right = row["published_pred"] == row["answer"]
        yield Case(f"MMLU-Pro {row['model']}", name, problem, row["response"], right)
    for row in json_lines(folder / "gsm8k" / "responses.jsonl.gz")[:MOST]:
        problem = Problem("gsm8k", "math500", "math", "test", row["question"], row["answer"], "math")
        yield Case(f"GSM8K {row['model']}", row["question"][:60], problem, row["response"], row["published_correct"])


def gold_cases(name: str, problems: Iterable[Problem]) -> Iterator[Case]:
    """Return each gold answer compared with itself: in the prompt's form, in a box and in a sentence."""
    for problem in problems:
        if problem.answer.strip():
            boxed = rf"So it is $\boxed{{{problem.answer}}}$."
            for response in dict.fromkeys((format_gold_response(problem), boxed, f"The answer is {problem.answer}")):
                yield Case(f"gold {name}", problem.key, problem, response, True)


def crossed_cases(name: str, problems: list[Problem]) -> Iterator[Case]:
    """Return the first gold answers compared with those of other rows whose text differs."""
    chance = random.Random(SEED)
    for problem in islice((problem for problem in problems if problem.answer.strip()), CROSSED):
        for other in chance.sample(problems, OTHERS):
            if other.answer.strip() and other.answer != problem.answer:
                response = format_gold_response(problem).replace(problem.answer, other.answer)
                yield Case(f"other golds {name}", problem.key, problem, response, None)


def solution_cases(problems: list[Problem], file: Path) -> Iterator[Case]:
    """Return the reference solutions, which end with the gold answer."""
    solutions = {row["id"]: row["solution"] for row in json_lines(file)}
    for problem in problems:
        if problem.answer.strip():
            yield Case("solutions MATH train", problem.key, problem, solutions[problem.id], True)


def hostile_cases(problems: Iterable[Problem]) -> Iterator[Case]:
    """Return every hostile answer against every distinct gold answer of a grader."""
    distinct = {(problem.grader, problem.answer.strip()): problem for problem in problems if problem.answer.strip()}
    for problem in distinct.values():
        for answer in HOSTILE:
            yield Case(f"hostile {problem.grader}", problem.key, problem, rf"\boxed{{{answer}}}", None)


def letter_cases(name: str, problems: Iterable[Problem]) -> Iterator[Case]:
    """Return every letter of every question in three spellings."""
    for problem in problems:
        for letter, text in zip("ABCDEFGHIJ", problem.choices, strict=False):
            for spelling in LETTERS:
                response = spelling.format(letter=letter, text=text)
                yield Case(f"letters {name}", problem.key, problem, response, letter == problem.answer)


def program_cases(file: Path) -> Iterator[Case]:
    """Return o1-preview's programs with public tests; the right verdict is unknown, because hidden tests decided it."""
    problems = {problem.id.removeprefix("lcb-"): problem for problem in statements()}
    for row in json_lines(file):
        if problem := problems.get(str(row["question_id"])):
            yield Case("programs o1-preview", problem.key, problem, row["output_list"][0], None)


# ── verdicts ─────────────────────────────────────────────────────────────────


def judged(selected: list[Case]) -> Iterator[dict[str, Any]]:
    """Judge each case; programs run in parallel."""
    code = [case for case in selected if case.problem.grader == "code"]
    ran = dict(zip(code, grade_many((case.problem, case.response) for case in code), strict=True))
    for case in selected:
        grade_ = ran[case] if case in ran else grade(case.problem, case.response)
        yield {
            "group": case.group, "name": case.name, "gold": case.problem.answer, "response": case.response,
            "right": case.right, "correct": grade_.correct, "extracted": grade_.extracted, "reason": grade_.reason,
        }  # fmt: skip


def read(file: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """Read the rows of a file by the key of a case."""
    with file.open(encoding="utf-8") as lines:
        rows = map(json.loads, lines)
        return {tuple(row[field] for field in ("group", "name", "gold", "response")): row for row in rows}


def changes(old: dict[tuple[str, ...], dict[str, Any]], new: dict[tuple[str, ...], dict[str, Any]]) -> str:
    """Return the changed verdicts, grouped by newly right and newly wrong; cases in only one file are counted."""
    changed = [row for key, row in new.items() if key in old and old[key]["correct"] != row["correct"]]
    lines = []
    for title, correct in (("Newly right", True), ("Newly wrong", False)):
        rows = [row for row in changed if row["correct"] is correct]
        bad = sum(row["right"] is (not correct) for row in rows)
        lines.append(f"{title}: {len(rows)}, {bad} of them against what the case says")
        lines += [_line(row) for row in rows]
    both, gone = len(new.keys() & old.keys()), len(old.keys() - new.keys())
    lines.append(f"Same verdict: {both - len(changed)}. New cases: {len(new) - both}. Cases gone: {gone}.")
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    """Format one changed verdict; `!` marks an unexpected one."""
    mark = "!" if row["right"] is (not row["correct"]) else " "
    parts = (f"gold {row['gold'][:SHOWN]!r}", f"response …{row['response'][-SHOWN:]!r}",
             f"extracted {row['extracted'][:SHOWN]!r}")  # fmt: skip
    return f" {mark} [{row['group']}] " + " | ".join(parts)


def next_questions(published: Iterable[Case]) -> str:
    """Count the responses that answer a question of their own after the one that was asked, otherwise than that one,
    and those in which the first or the last answer is the gold one."""
    counts: Counter[str] = Counter()
    for case in published:
        starts = [0, *(mark.start() for mark in NEXT_QUESTION.finditer(case.response)), len(case.response)]
        parts = [case.response[start:end] for start, end in pairwise(starts)]
        grades = [grade(case.problem, part) for part in parts if part.strip()]
        answers = [grade_ for grade_ in grades if grade_.extracted]
        if len(answers) > 1 and answers[0].extracted != answers[-1].extracted:
            counts.update(responses=1, first=answers[0].correct, last=answers[-1].correct)
    return (
        f"{counts['responses']} published responses go on with a question of their own and answer it otherwise: "
        f"the first answer is right in {counts['first']}, the last one in {counts['last']}"
    )


def summary(rows: Iterable[dict[str, Any]]) -> str:
    """Count the right cases of each group, and the unexpected verdicts."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[row["group"], "cases"] += 1
        counts[row["group"], "graded right"] += row["correct"]
        counts[row["group"], "wrongly refused"] += row["right"] is True and not row["correct"]
        counts[row["group"], "wrongly accepted"] += row["right"] is False and row["correct"]
    columns = ("cases", "graded right", "wrongly refused", "wrongly accepted")
    groups = dict.fromkeys(group for group, _ in counts)
    lines = [", ".join(f"{counts[group, name]:,} {name}" for name in columns) for group in groups]
    return "\n".join(f"{group}: {line}" for group, line in zip(groups, lines, strict=True))


def main() -> int:
    """Judge every case, write the rows and print the counts; with an earlier file, also print the changes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verdicts", description=__doc__)
    parser.add_argument("file", type=Path, help="where the verdicts are written, as JSON lines")
    parser.add_argument("--against", type=Path, metavar="OLD", help="an earlier file to compare with")
    parser.add_argument("--programs", action="store_true", help="also run programs, which takes minutes")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    root = Workspace.find().root
    configure(root)
    selected = [
        case
        for case in cases(root / ROWS, programs=arguments.programs)
        if arguments.programs or case.problem.grader != "code"
    ]
    start = cpu_s()
    with arguments.file.open("w", encoding="utf-8") as file:
        for row in judged(selected):
            file.write(json.dumps(row, ensure_ascii=True) + "\n")
    new = read(arguments.file)
    print(summary(new.values()))
    print(next_questions(case for case in selected if case.group.startswith("MMLU-Pro")))
    print(f"{len(new):,} verdicts in {cpu_s() - start:.0f} CPU s, written to {arguments.file}")
    if arguments.against:
        print(changes(read(arguments.against), new))
    return 0


if __name__ == "__main__":
    sys.exit(main())
