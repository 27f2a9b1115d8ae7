"""The tests' own tools: time-outs, the order of files, what pytest prints, mutations, and rows of benchmarks."""

from __future__ import annotations

import ast
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ops.config import Worker
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from tests.bench.mutations import FAULTS, ROOT
from tests.bench.real_rows import Answers, Rows, questions, table
from tests.bench.row import Absent, Report, Row
from tests.conftest import UNIT, pytest_collection_modifyitems
from tests.report import skipped_lines

pytest_plugins = ["pytester"]
TESTS = Path(__file__).parents[1]
STARTING = {"run", "check_output", "check_call", "call"}
WAITING = {"communicate", "wait", "join", "result"}
"""Methods of processes, threads and futures; those of asyncio are awaited, or take no time-out.

`CheckpointDigests.wait` takes no time-out either, because it waits for a thread that reads the files of a checkpoint.
"""


def unbounded_waits(source: str) -> Iterator[tuple[int, str]]:
    """Return line and function of each call that may wait without end."""
    tree = ast.parse(source)
    awaited = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Await)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or id(node) in awaited:
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        starts = owner == "subprocess" and name in STARTING
        waits = name in WAITING and not node.args and not owner.endswith(("task", "digests"))
        bounded = any(keyword.arg in ("timeout", None) for keyword in node.keywords)
        if (starts or waits) and not bounded:
            yield node.lineno, f"{owner}.{name}"


def test_every_wait_has_a_timeout() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}: {call}"
        for file in sorted(TESTS.rglob("*.py"))
        for line, call in unbounded_waits(file.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_wait_without_a_timeout_is_found() -> None:
    source = """
subprocess.run(command)
process.communicate()
process.wait(5)
thread.join()
subprocess.run(command, timeout=5)
async def together():
    await barrier.wait()
"""
    calls = [call for _, call in unbounded_waits(source)]
    assert sorted(calls) == ["process.communicate", "subprocess.run", "thread.join"]


def test_skips_are_counted_by_reason() -> None:
    reasons = Counter({"redis-server is not installed": 43, "no vLLM": 14})
    assert skipped_lines(reasons) == ["43 skipped: redis-server is not installed", "14 skipped: no vLLM"]


def test_a_failure_shows_the_command_that_repeats_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(UNIT.parents[1]))
    pytester.makepyfile(
        test_two="""
        import pytest

        @pytest.mark.parametrize("words", ["two words"])
        def test_fails(words):
            assert words == "one"

        def test_is_skipped():
            pytest.skip("no chromium")
        """
    )
    result = pytester.runpytest_subprocess("-p", "tests.report", f"--rootdir={pytester.path}")
    printed = result.stdout.str()
    assert "1 skipped: no chromium" in printed
    assert "-m pytest -m '' 'test_two.py::test_fails[two words]'" in printed


def test_the_order_of_files() -> None:
    class Item:
        def __init__(self, path: Path, **markers: float | None) -> None:
            self.path, self.markers = path, markers

        def get_closest_marker(self, name: str) -> object:
            return SimpleNamespace(args=(self.markers[name],)) if name in self.markers else None

    items = [
        Item(UNIT / "training" / "test_long.py", timeout=600), Item(UNIT / "training" / "test_slow.py", slow=None),
        Item(UNIT / "cache" / "test_quick.py"), Item(UNIT / "test_architecture.py"),
    ]  # fmt: skip
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert [item.path.name for item in items] == [
        "test_architecture.py", "test_quick.py", "test_long.py", "test_slow.py"
    ]  # fmt: skip


def test_each_fault_replaces_one_place_of_the_code_and_names_tests_that_exist() -> None:
    """`make mutations` takes minutes; this shows at once that each fault can still be put into the code."""
    areas = yaml.safe_load(FAULTS.read_text(encoding="utf-8"))
    wrong = [
        f"{name}: {old!r}"
        for area in areas
        for name, old, new in area["faults"]
        if (ROOT / name).read_text(encoding="utf-8").count(old) != 1 or old == new
    ]
    assert wrong == []
    assert [test for area in areas for test in area["tests"] if not (ROOT / test).exists()] == []
    assert sum(len(area["faults"]) for area in areas) >= 30


# ── rows of benchmarks ───────────────────────────────────────────────────────

WORKER = Worker(name="w", model="hosted_vllm/m", max_tokens=50)


def row(problem: str, sample: int, score: float, *, tokens: int = 10, cached: bool = False) -> ResponseRow:
    finish = "length" if tokens == WORKER.max_tokens else "stop"
    response = Response("Answer: A", Usage(20, tokens), 0.0, 1.0, finish, cached=cached)
    return ResponseRow("w", "mmlu", problem, sample, "ok", response, score, "A" if score else "")


def cells(answers: Answers) -> dict[str, str]:
    head, _, line = table({"a set": answers}, WORKER).splitlines()
    names, values = ([cell.strip() for cell in text.strip("|").split("|")] for text in (head, line))
    return dict(zip(names, values, strict=True))


def test_repeated_answers_to_a_question_count_as_one() -> None:
    always, never = [row("p", n, 1.0, tokens=50) for n in range(3)], [row("q", n, 0.0) for n in range(3)]
    shown = cells(Answers([*always, *never], seconds=2.0))
    assert (shown["questions"], shown["answers"]) == ("2", "6")
    assert shown["right, %"] == "50.0 (9.5 … 90.5)", "six answers, but two questions"
    assert shown["cut at 50 tokens, %"] == "50.0 (9.5 … 90.5)"
    assert shown["no answer found, %"] == "50.0 (9.5 … 90.5)"
    assert (shown["tokens an answer"], shown["tokens/s"]) == ("30", "90")


def test_unreachable_answers_are_counted_and_not_wrong() -> None:
    lost = ResponseRow("w", "mmlu", "p", 1, "unreachable")
    shown = cells(Answers([row("p", 0, 1.0), lost, row("q", 0, 1.0)], seconds=1.0))
    assert (shown["right, %"], shown["unscorable"]) == ("100.0 (34.2 … 100.0)", "1")


def test_the_cache_has_no_speed() -> None:
    asked, known = row("p", 0, 1.0, tokens=40), row("q", 0, 1.0, tokens=30, cached=True)
    assert cells(Answers([asked, known], seconds=2.0))["tokens/s"] == "20"
    assert cells(Answers([known], seconds=2.0))["tokens/s"] == "–"


@pytest.mark.parametrize("count", [2, 9])
def test_a_row_whose_gold_answer_fails_is_not_asked(tmp_path: Path, count: int) -> None:
    rows = [
        {"id": f"n{n}", "question": f"What is {n} and {n}?", "choices": None, "answer": str(2 * n), "grader": "text"}
        for n in range(1, 5)
    ] + [{"id": "bad", "question": "What is nothing?", "choices": None, "answer": "...", "grader": "text"}]
    with gzip.open(tmp_path / "few.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in rows)
    drawn = questions(tmp_path, Rows("rlpr", "few"), count)
    assert len(drawn) == min(count, 4)
    assert "bad" not in {problem.id for problem in drawn}
    assert drawn == questions(tmp_path, Rows("rlpr", "few"), count)


def test_a_row_is_written_when_it_is_measured_and_a_failure_or_an_absent_program_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "made" / "bench.json"
    report, seen = Report(file), []

    def entries() -> list[dict[str, Any]]:
        return json.loads(file.read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    def quick() -> Iterator[Row]:
        yield Row("quick", 2.0, "by hand", 4.0, 1.1, "µs")
        seen.append(len(entries()))
        raise RuntimeError("two\nlines")

    def absent() -> Iterator[Row]:
        raise Absent("bubblewrap")

    def stopped() -> Iterator[Row]:
        raise SystemExit("the server did not start")

    def late() -> Iterator[Row]:
        yield Row("late", 6.0, "by hand", 4.0, 1.1, "µs")

    report.run("first", quick)
    assert (report.holds, report.failed, seen) == (True, 1, [1])
    for part in (absent, stopped, late):
        report.run("second", part)
    report.show()
    assert (report.holds, report.failed) == (False, 2)
    rows = [(row["name"], row["ratio"], row["holds"]) for row in entries() if "name" in row]
    assert rows == [("quick", 0.5, True), ("late", 1.5, False)]
    left_out = [row.get("skipped") or row["failed"] for row in entries() if "name" not in row]
    assert left_out == ["RuntimeError: two lines", "bubblewrap is absent", "SystemExit: the server did not start"]
    printed = capsys.readouterr().out
    assert printed.count("✗") == 1 and "skipped second: absent: bubblewrap is absent" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(("against", "reference"), [("", 4.0), ("by hand", 0.0), ("by hand", float("nan"))])
def test_a_row_without_a_reference_is_refused(against: str, reference: float) -> None:
    with pytest.raises(ValueError, match="no ratio"):
        Row("alone", 2.0, against, reference, 1.1, "µs")
