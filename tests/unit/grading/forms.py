"""The corpora of answers: what responses look like, which verdict each must get, and why.

`corpus/` has a file of near misses for each benchmark, `forms/` one for each kind of form of one grader:

    grader: math                  # math, choice, text or code; a benchmark's file has none, for its name says it
    question: How much is it?     # these three are defaults for every case of the file
    choices: [mitosis, meiosis]
    tests: [{kind: stdin, input: "1\\n", output: "2\\n"}]
    right:                        # whole responses that must score 1, wrong: those that must score 0
      - [gold, response, why]
      - {gold: …, response: …, why: …, question: …, choices: …, tests: …}
    wrappings:                    # every wrapping around every answer: each product is a case
      - ['So it is $\\boxed{{answer}}$.', in a box]
    answers:
      right: [[gold, equal form, why]]
      wrong: [[gold, near miss, why]]
    problems:                     # tests with programs that must pass and such that must not
      - {name: …, tests: …, right: {why: program}, wrong: {why: program}}
    misses:                       # cases above that the grader is known to get wrong, by gold and response
      - [gold, response]

Where `{answer}` stands alone on an indented line, every line of the answer gets that indentation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ops.benchmarks.registry import BENCHMARKS
from ops.core.problem import CodeTest, Problem
from tests.builders import fenced

FOLDER = Path(__file__).with_name("forms")
CORPUS = Path(__file__).with_name("corpus")
QUESTION = "What is it?"
_BENCHMARKS = {"math": "math500", "choice": "mmlu", "text": "rlpr", "code": "livecodebench"}
"""Grader → the benchmark of the problems of its forms."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FIELDS = {"grader", "question", "choices", "tests", "right", "wrong", "wrappings", "answers", "problems", "misses"}
_INDENTED = re.compile(r"^([ \t]+)\{answer\}$", re.MULTILINE)


class Form(NamedTuple):
    """One response to one problem. `score` is the verdict that it must get; a `miss` is known to get the other."""

    kind: str
    problem: Problem
    response: str
    score: float
    why: str
    miss: bool

    @property
    def right(self) -> bool:
        return self.score == 1.0


def load(folder: Path = FOLDER) -> list[Form]:
    """Every case of every file, in the files' order. Raises `ValueError` that names the file at fault."""
    return [form for file in sorted(folder.glob("*.yaml")) for form in read(file)]


def wrappings(kind: str, folder: Path = FOLDER) -> list[str]:
    """The templates of one file."""
    content = yaml.safe_load((folder / f"{kind}.yaml").read_text(encoding="utf-8"))
    return [template for template, _ in content["wrappings"]]


def read(file: Path) -> list[Form]:
    """The cases of one file; its name is their kind."""
    content = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
    if unknown := set(content) - _FIELDS:
        raise ValueError(f"{file}: unknown fields {sorted(unknown)}; there are {sorted(_FIELDS)}")
    misses = {(str(gold), response) for gold, response in content.get("misses", ())}
    forms = [_form(file.stem, content, case, score, misses) for case, score in _cases(content)]
    counts = Counter((form.problem, form.response) for form in forms)
    if twice := [response for (_, response), count in counts.items() if count > 1]:
        raise ValueError(f"{file}: these responses stand there twice: {twice}")
    if absent := misses - {(form.problem.answer, form.response) for form in forms}:
        raise ValueError(f"{file}: no case is the known miss {sorted(absent)}")
    return forms


def _cases(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], float]]:
    for name, score in (("right", 1.0), ("wrong", 0.0)):
        for case in content.get(name, ()):
            yield _fields(case), score
        for case in map(_fields, content.get("answers", {}).get(name, ())):
            for template, why in content["wrappings"]:
                response = wrapped(template, case["response"])
                yield {**case, "response": response, "why": f"{case['why']}, {why}"}, score
        for problem in content.get("problems", ()):
            for why, program in problem[name].items():
                case = {"gold": "", "response": fenced(program), "why": f"{problem['name']}: {why}"}
                yield case | {"tests": problem["tests"]}, score


def _fields(case: list[Any] | dict[str, Any]) -> dict[str, Any]:
    return case if isinstance(case, dict) else dict(zip(("gold", "response", "why"), case, strict=True))


def wrapped(template: str, answer: str) -> str:
    """`template` with `answer` in its place."""

    def indented(match: re.Match[str]) -> str:
        return "\n".join(match.group(1) + line if line else line for line in answer.splitlines())

    return _INDENTED.sub(indented, template).replace("{answer}", answer)


def _form(kind: str, content: dict[str, Any], case: dict[str, Any], score: float, misses: set[tuple[str, str]]) -> Form:
    values = content | case
    entry = BENCHMARKS[_BENCHMARKS[content["grader"]] if "grader" in content else kind]
    problem = Problem(
        "form", entry.name, entry.domain, "test", values.get("question", QUESTION), str(values["gold"]), entry.grader,
        tuple(str(choice) for choice in values.get("choices", ())),
        tuple(CodeTest(**test) for test in values.get("tests", ())),
    )  # fmt: skip
    return Form(kind, problem, values["response"], score, values["why"], (problem.answer, values["response"]) in misses)
