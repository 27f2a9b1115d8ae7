"""The version of a grader: it covers every module whose code takes part in a verdict, and nothing that decides none."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ops
from ops import grading
from ops.config import FunctionGrader
from ops.core import code_version
from ops.core.problem import CodeTest, Problem
from ops.grading import GRADERS, configure, find_available_isolation, grade, version
from ops.grading.isolation import Libraries
from ops.grading.version import CALLING_MODULES, grader_version, list_grader_modules, list_imported_packages
from tests.builders import fenced, make_code_problem, make_problem

ROOT = Path(__file__).resolve().parents[3]
OWN = FunctionGrader(file="own.py", source="def grade(problem, answer):\n    return answer == '4'")
JUDGED: dict[str, list[tuple[Problem, str]]] = {
    "math": [
        (make_problem(grader="math", answer=gold), said)
        for gold, said in (
            (r"\frac{\sqrt{2}}{2}", r"So it is \boxed{1/\sqrt{2}}."), ("x^2+2x+1", "The answer is $(x+1)^2$."),
            (r"\{1, 2\}", "Thus {2, 1}."), ("12 km", "Answer: twelve kilometers"), ("1/2", "It is 50%."),
            (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}1\\3\end{pmatrix}}"),
        )
    ],
    "choice": [
        (make_problem(grader="choice", answer="B", choices=("up", "down", "left")), said)
        for said in ("Answer: B", "The answer is (C).", "It is down, not up.", "**B**", "I think so.")
    ],
    "text": [
        (make_problem(grader="text", answer=gold), said)
        for gold, said in (
            ("12.5 km/h", "Answer: 12.5 km/h"), ("March 3, 1999", "It was on 3 March 1999."), ("yes", "No."),
            ("$1,200", "The total is 1200 dollars."), ("a red fox", "So the answer is: a red fox."),
        )
    ],
    "code": [
        (make_code_problem(CodeTest("call", "f(2)", "4")), fenced("def f(x):\n    return x * x")),
        (make_code_problem(CodeTest("stdin", "2\n", "4\n")), fenced("print(int(input()) ** 2)")),
        (
            make_code_problem(CodeTest("unittest", "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
            "        self.assertEqual(f(2), 4)\n")), fenced("def f(x):\n    return x + 1"),
        ),
    ],
    "function": [(make_problem(grader="function", grading=OWN.version), "4")],
}  # fmt: skip
NO_VERDICT = {"ops.grading.verdicts", "ops.grading.version"}
"""Modules of `ops.grading` that no verdict depends on: they store verdicts, and name graders."""
SETTINGS = {"ops.config.base", "ops.config.graders"}
"""Modules that hold what a recipe says of a grader, which is in `Problem.grading`."""


def versions() -> dict[str, str]:
    version.hash_code_and_libraries.cache_clear()
    version.list_grader_modules.cache_clear()
    return {name: grader_version(name) for name in GRADERS}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package `ops`."""
    folder = tmp_path_factory.mktemp("copied") / "ops"
    return Path(shutil.copytree(code_version.PACKAGE_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def source(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The copy, of which versions are computed instead; what a test writes into it is taken back."""
    before = {file: file.read_bytes() for file in copied.rglob("*.py")}
    monkeypatch.setattr(code_version, "PACKAGE_FOLDER", copied)
    yield copied
    for file, content in before.items():
        if file.read_bytes() != content:
            file.write_bytes(content)
    monkeypatch.undo()
    versions()


def ran(work: Callable[[], object]) -> set[str]:
    """Return the modules of `ops` of which a function or a class body runs during `work`."""
    root, seen = Path(ops.__path__[0]), set[str]()

    def note(frame: FrameType, *_: Any) -> None:
        seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    files = [Path(name).relative_to(root.parent) for name in seen if name.startswith(f"{root}/")]
    return {re.sub(r"\.__init__$", "", ".".join(file.with_suffix("").parts)) for file in files}


@pytest.mark.parametrize("name", JUDGED)
def test_every_module_that_runs_for_a_verdict_is_in_its_version(name: str, tmp_path: Path) -> None:
    configure(ROOT, find_available_isolation(), graders=[OWN])
    for problem, response in JUDGED[name]:
        grading._MEMO.clear()
        took_part = ran(lambda problem=problem, response=response: grade(problem, response))
        assert f"ops.grading.graders.{name}" in took_part
        assert took_part - NO_VERDICT - SETTINGS <= set(list_grader_modules(name))


def test_what_runs_in_other_processes_is_in_the_version() -> None:
    assert "ops.grading.symbolic_worker" in list_grader_modules("math")
    harness = {f"ops.grading.harness.{part}" for part in ("calls", "cases", "guard", "mains", "plain", "start")}
    for name in ("code", "function"):
        assert harness <= set(list_grader_modules(name))
    libraries = {"math_verify", "latex2sympy2_extended", "sympy", "mpmath"}
    assert set(list_imported_packages(list_grader_modules("math"))) == libraries


def test_every_module_of_grading_is_in_a_version() -> None:
    folder = Path(ops.__path__[0])
    names = {".".join(("ops", *file.relative_to(folder).with_suffix("").parts)) for file in
             folder.joinpath("grading").rglob("*.py")}  # fmt: skip
    found = {name for grader in GRADERS for name in list_grader_modules(grader)}
    packages = {"ops.grading.harness", "ops.grading.graders"}
    assert {re.sub(r"\.__init__$", "", name) for name in names} - found - packages == NO_VERDICT
    for grader in GRADERS:
        assert set(CALLING_MODULES) <= set(list_grader_modules(grader))
        assert not [
            name for name in list_grader_modules(grader) if name.split(".")[1] not in ("core", "grading", "workflow")
        ]


def test_comments_docstrings_and_layout_are_in_no_version(source: Path) -> None:
    known = versions()
    for file in source.joinpath("grading").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        text = re.sub(r'\A("""|\'\'\')', r"\1Other words. ", text)
        text = re.sub(r'^( *)"""(?=\w)', r'\1"""Other words. ', text, flags=re.MULTILINE)
        file.write_text(f"# a comment\n\n{text}\n\n# the end\n" if text else text, encoding="utf-8")
    assert versions() == known


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("grading/numbers.py", {"math", "text"}),
        ("grading/symbolic_worker.py", {"math"}),
        ("grading/labels.py", {"choice", "text"}),
        ("grading/dates.py", {"text"}),
        ("grading/harness/calls.py", {"code", "function"}),
        ("grading/graders/function.py", {"function"}),
        ("grading/graders/judge.py", {"judge"}),
        ("grading/__init__.py", set(GRADERS)),
        ("grading/answer_clusters.py", set(GRADERS)),
        ("workflow/judging.py", set(GRADERS)),
        ("core/problem.py", set(GRADERS)),
        ("core/sqlite.py", set()),
        ("grading/verdicts.py", set()),
        ("workers/client.py", set()),
    ],
)
def test_a_changed_line_changes_the_versions_that_depend_on_it(file: str, changed: set[str], source: Path) -> None:
    known = versions()
    with (source / file).open("a", encoding="utf-8") as module:
        module.write("\n\n_ADDED = 1\n")
    now = versions()
    assert {name for name in now if now[name] != known[name]} == changed


def test_another_version_of_a_library_changes_the_versions_of_its_graders(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, real = versions(), metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "9.9" if name == "sympy" else real(name))
    now = versions()
    assert {name for name in now if now[name] != known[name]} == {"math"}


def test_the_libraries_of_programs_count_for_graders_that_run_programs(tmp_path: Path) -> None:
    programs = Libraries((str(tmp_path),), "")
    known = {name: grader_version(name, programs) for name in GRADERS}
    version.hash_installed_libraries.cache_clear()
    (tmp_path / "numpy-3.0.dist-info").mkdir()
    now = {name: grader_version(name, programs) for name in GRADERS}
    assert {name for name in now if now[name] != known[name]} == {"code", "function"}
