"""A problem, its tests, and the grade of an answer to it, which all packages use."""

from __future__ import annotations

import string
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

Domain = str
"""The domain of a benchmark. The training mix has a quota, and reports show an accuracy, for each domain."""
GraderName = str
"""The name of a grader (a file in `ops/grading/graders`), or "open" for a question that is not graded."""
Split = Literal["train", "test"]
TestKind = Literal["stdin", "call", "unittest"]


@dataclass(frozen=True)
class CodeTest:
    """One test of a program.

    - "stdin": the program is run with `input` as its standard input, and its standard output is compared with `output`.
    - "call": `input` is a Python expression such as `f(2, 3)`, whose value must equal the Python literal `output`.
    - "unittest": `input` is a module that defines `unittest.TestCase` classes and is run beside the program. `output`
      is not used.

    A `hidden` test is not shown with the question.
    """

    kind: TestKind
    input: str
    output: str = ""
    hidden: bool = False

    def as_row(self) -> dict[str, Any]:
        """Return the test as a dictionary for JSON. The field `hidden` is left out for a public test."""
        row = asdict(self)
        return row if self.hidden else {key: value for key, value in row.items() if key != "hidden"}


@dataclass(frozen=True)
class HiddenTests:
    """A reference to a problem's hidden tests, which are stored in a file of their own (`ops.grading.hidden_tests`).

    `count` is the number of tests, `characters` the total length of their inputs and outputs, and `digest` a SHA-256 of
    their contents. `names` are the names that hidden tests call and no public test calls.
    """

    count: int
    characters: int
    digest: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A question with its gold answer and the grader that judges answers to it.

    - `id` is unique within its benchmark, and `key` among all problems.
    - `answer` is the gold answer in the form that the grader reads: LaTeX for "math", a letter for "choice", a short
      text for "text", a reference program (or "") for "code". The grader is "open" for a user's question, which is not
      graded.
    - `choices` are the texts of the choices A, B, C …; empty unless the question offers choices.
    - `family` names the generator of a synthetic problem; "" for real data.
    - `grading` is the version of the benchmark's own grader; "" if the recipe states none.
    - `tests` are the public tests (and the hidden ones only while a benchmark is being loaded). `hidden` refers to the
      hidden tests.
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
        """The number of public and hidden tests together."""
        return len(self.tests) + (self.hidden.count if self.hidden else 0)

    @property
    def has_hidden_tests(self) -> bool:
        """True if a worker does not see some of the tests."""
        return self.hidden is not None or any(test.hidden for test in self.tests)

    @property
    def key(self) -> str:
        """The identity of the problem among all benchmarks, for example "mmlu/7"."""
        return problem_key(self.benchmark, self.id)

    def as_row(self) -> dict[str, Any]:
        """Return the problem as a dictionary for JSON, which `from_row` reads. Empty `grading` and `hidden` are left
        out."""
        row = asdict(self)
        row["choices"] = list(self.choices)
        row["tests"] = [test.as_row() for test in self.tests]
        return {key: value for key, value in row.items() if value or key not in ("grading", "hidden")}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Problem:
        """Return the problem that `as_row` has written. Raises `TypeError` for an unknown or missing key."""
        values = dict(row)
        values["choices"] = tuple(values.get("choices") or ())
        values["tests"] = tuple(CodeTest(**test) for test in values.get("tests") or ())
        if hidden := values.get("hidden"):
            values["hidden"] = HiddenTests(**hidden | {"names": tuple(hidden["names"])})
        return cls(**values)


def problem_key(benchmark: str, problem_id: str) -> str:
    """Return the identity of a problem among all benchmarks, "BENCHMARK/ID" (for example "mmlu/7")."""
    return f"{benchmark}/{problem_id}"


def benchmark_of(key: str) -> str:
    """Return the name of the benchmark in a problem's key."""
    return key.partition("/")[0]


class FailedTest(NamedTuple):
    """The first test that a program fails. Texts are shortened for display.

    `number` is the position of the test, from 1, among the `of` tests of the problem, or among the test methods of a
    unittest module.
    """

    number: int
    of: int
    kind: TestKind
    got: str
    """What happened instead, for example "printed '4'", "f(2) gave 5" or "TestCases.test_empty: ValueError: …"."""
    expected: str = ""
    """The expected output; "" for a failed assertion, whose message is in `got`."""
    hidden: bool = False

    @property
    def label(self) -> str:
        """The test's position and kind, for example "test 2 of 5 (stdin, hidden)"."""
        return f"test {self.number} of {self.of} ({self.kind}{', hidden' if self.hidden else ''})"

    def __str__(self) -> str:
        return f"{self.label}: {self.got}" + (f", expected {self.expected}" if self.expected else "")


class Grade(NamedTuple):
    """A grader's verdict on an answer: the `score` in [0, 1], the `extracted` answer, the reason, and the test that a
    program failed."""

    score: float
    extracted: str
    reason: str
    failed: FailedTest | None = None
    unscorable: bool = False
    """True if the judging model could not be reached, so that it is not known whether the answer is correct."""
    cost_usd: float = 0.0
    """The cost of the judging model's reply in USD."""
    is_final: bool = True
    """False if the verdict may differ on another machine or on one with less load, so that it is not stored."""

    @property
    def correct(self) -> bool:
        """True if the score is 1."""
        return self.score >= 1.0


def format_choices(problem: Problem) -> list[str]:
    """Return the choices as lines "A) …"; an empty list for a question without choices."""
    return [f"{letter}) {text}" for letter, text in zip(string.ascii_uppercase, problem.choices, strict=False)]
