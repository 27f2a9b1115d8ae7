"""`Problem` and `Grade`, which every package uses, and the question as a worker reads it."""

from __future__ import annotations

import string
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

Domain = str
"""The domain of a benchmark: the training mix has a quota, and reports an accuracy, per domain."""
GraderName = str
"""A file in `ops/grading/graders`; "open" for a question that no grader judges."""
Split = Literal["train", "test"]
TestKind = Literal["stdin", "call", "unittest"]


@dataclass(frozen=True)
class CodeTest:
    """One test of a program.

    `kind` "stdin": run the program on `input` and compare its stdout with `output`.
    `kind` "call": `input` is a Python expression such as `f(2, 3)`; its value must
    equal the Python literal `output`. `kind` "unittest": `input` is a module that
    defines `unittest.TestCase`s to run beside the program; `output` is unused.
    A `hidden` one is not shown with the question.
    """

    kind: TestKind
    input: str
    output: str = ""
    hidden: bool = False

    def as_row(self) -> dict[str, Any]:
        """Return a row for JSON; `hidden` is omitted for a public test."""
        row = asdict(self)
        return row if self.hidden else {key: value for key, value in row.items() if key != "hidden"}


@dataclass(frozen=True)
class HiddenTests:
    """A reference to a problem's hidden tests, which lie in a file of their own (`ops.grading.hidden_tests`).

    `count` is their number, `characters` the size of their inputs and outputs, `digest` a SHA-256 of their contents.
    `names` are names that they call and no public test does.
    """

    count: int
    characters: int
    digest: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A question with a gold answer and the grader that judges answers to it.

    `id` is unique within its benchmark, `key` everywhere. `answer` is the gold answer as the grader
    reads it: LaTeX for "math", a letter for "choice", short text for "text", a
    reference program (or "") for "code"; "open" is a user's question, which nothing grades. `choices` are the texts
    behind the letters A, B, C …; empty unless the question offers choices. `family` names the embedded generator, ""
    for real data. `grading` is the version of the benchmark's own grader, "" if the recipe states none. `tests` are
    public, except while a benchmark is loaded; `hidden` refers to the others.
    """

    id: str
    benchmark: str
    domain: Domain
    split: Split
    question: str
    answer: str
    grader: GraderName
    choices: tuple[str, ...] = ()
    tests: tuple[CodeTest, ...] = ()
    subject: str = ""
    level: str = ""
    family: str = ""
    source: str = ""
    grading: str = ""
    hidden: HiddenTests | None = None

    @property
    def test_count(self) -> int:
        """The number of public and hidden tests."""
        return len(self.tests) + (self.hidden.count if self.hidden else 0)

    @property
    def key(self) -> str:
        """The problem's identity everywhere: `mmlu/7`."""
        return problem_key(self.benchmark, self.id)

    def as_row(self) -> dict[str, Any]:
        """Return a row for JSON; `from_row` is its inverse. `grading` and `hidden` are omitted where there is none."""
        row = asdict(self)
        row["choices"] = list(self.choices)
        row["tests"] = [test.as_row() for test in self.tests]
        return {key: value for key, value in row.items() if value or key not in ("grading", "hidden")}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Problem:
        """Rebuild a problem from `as_row`'s output. Raises `TypeError` or `KeyError` on unknown or missing keys."""
        values = dict(row)
        values["choices"] = tuple(values.get("choices") or ())
        values["tests"] = tuple(CodeTest(**test) for test in values.get("tests") or ())
        if hidden := values.get("hidden"):
            values["hidden"] = HiddenTests(**hidden | {"names": tuple(hidden["names"])})
        return cls(**values)


def problem_key(benchmark: str, problem_id: str) -> str:
    """Return a problem's identity `BENCHMARK/ID` (`mmlu/7`); an id alone is unique only within its benchmark."""
    return f"{benchmark}/{problem_id}"


def benchmark_of(key: str) -> str:
    """Return the benchmark of a problem's key."""
    return key.partition("/")[0]


class FailedTest(NamedTuple):
    """The first test that a program fails, with texts shortened for display.

    `number` counts from 1 among the problem's tests; for unit tests, among the module's methods.
    """

    number: int
    of: int
    kind: TestKind
    got: str
    """The actual result: `printed '4'`, `f(2) gave 5`, `TestCases.test_empty: ValueError: …`."""
    expected: str = ""
    """The expected output; "" for an assertion, whose message is in `got`."""
    hidden: bool = False

    @property
    def label(self) -> str:
        """`test 2 of 5 (stdin, hidden)`."""
        return f"test {self.number} of {self.of} ({self.kind}{', hidden' if self.hidden else ''})"

    def __str__(self) -> str:
        return f"{self.label}: {self.got}" + (f", expected {self.expected}" if self.expected else "")


class Grade(NamedTuple):
    """A grader's verdict: `score` in [0, 1], the `extracted` answer, the reason, and the failed test of a program."""

    score: float
    extracted: str
    reason: str
    failed: FailedTest | None = None
    unscorable: bool = False
    """Whether the judge could not be reached: correctness is then unknown."""
    cost_usd: float = 0.0
    """What the judge's reply cost."""

    @property
    def correct(self) -> bool:
        return self.score >= 1.0


def format_choices(problem: Problem) -> list[str]:
    """Return the choices as `A) …` lines; none for an open question."""
    return [f"{letter}) {text}" for letter, text in zip(string.ascii_uppercase, problem.choices, strict=False)]
