"""The evaluation loop against hand-written completions and a client that answers from a table."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ops.conductor.stored_writer import StoredWriter, Writer, policy_id
from ops.config import Evaluation, Prompting, Worker
from ops.core.digests import write_digest
from ops.core.errors import DataError, OverBudget, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.status import Status
from ops.core.usage import Usage
from ops.evaluation.row_sorting import RowSorter
from ops.evaluation.runner import MAX_BATCHES_IN_PROGRESS, evaluate
from ops.results import table
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import summarize
from ops.results.table import load_rows, save_rows
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.team import Team
from tests.bench.evaluation import measure

WORKERS = (Worker(name="adder", model="local/adder"), Worker(name="liar", model="local/liar"))
PROMPTING = Prompting(style="compact", few_shots="none")
ALONE = Workflow.single(0).render()
TOGETHER = Workflow((Step(1, "Guess."), Step(0, "Check it.", "all"))).render()


def problem(i: int, answer: str = "7") -> Problem:
    return Problem(
        id=f"p{i}", benchmark="math500", domain="math", split="test", question=f"Question {i}?",
        answer=answer, grader="math",
    )  # fmt: skip


class Table:
    """A client: the adder says 7, the liar 8; the test can make a question fail."""

    def __init__(self, failures: dict[str, Exception] | None = None) -> None:
        self.failures = failures or {}
        self.samples: list[int] = []

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        await asyncio.sleep(0)
        self.samples.append(Sample.of(sample).index)
        for question, error in self.failures.items():
            if messages[0]["content"].startswith(question):
                raise error
        value = 7 if worker.name == "adder" else 8
        return Response(f"\\boxed{{{value}}}", Usage(10, 5), 0.001, 0.5, "stop")


class Fixed:
    """A writer that gives the same completions in turn and records its calls."""

    def __init__(self, *completions: str) -> None:
        self.completions = completions
        self.calls: list[tuple[int, float, int]] = []

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> list[str]:
        self.calls.append((len(prompts), temperature, seed))
        return [self.completions[i % len(self.completions)] for i in range(len(prompts))]


def problems(count: int) -> list[Problem]:
    return [problem(i) for i in range(count)]


def run(writer: Fixed, problems: list[Problem], client: Table | None = None, **settings: float) -> list[OutcomeRow]:
    evaluation = Evaluation(**settings)  # type: ignore[arg-type]
    return asyncio.run(evaluate(writer, problems, Team(WORKERS, client or Table(), PROMPTING), evaluation))


def test_right_wrong_and_unreadable() -> None:
    writer = Fixed(ALONE, Workflow.single(1).render(), "I would rather not.", TOGETHER)
    rows = run(writer, problems(4))
    assert [row.correct for row in rows] == [1, 0, 0, 1]
    assert [row.format_ok for row in rows] == [True, True, False, True]
    assert [row.workers for row in rows] == [("adder",), ("liar",), (), ("liar", "adder")]
    assert [row.steps for row in rows] == [1, 1, 0, 2]
    assert rows[2].status == Status.NO_WORKFLOW and rows[2].failure and rows[2].completion == "I would rather not."
    assert (rows[3].tokens, rows[3].cost_usd, rows[3].latency_s) == (
        30,
        pytest.approx(0.002),
        pytest.approx(1.0),
    )


def test_a_step_that_no_later_step_sees_is_not_counted_among_the_workers() -> None:
    [row] = run(Fixed(Workflow((Step(1, "Shout."), Step(0, SOLVE_SUBTASK))).render()), [problem(0)])
    assert (row.steps, row.workers, row.tokens) == (2, ("adder",), 15)


def test_unreachable_is_unscorable_and_refused_is_wrong() -> None:
    client = Table({"Question 0": WorkerUnreachable("timed out"), "Question 1": WorkerRefused("filtered")})
    rows = run(Fixed(ALONE), problems(3), client)
    assert [(row.status, row.unscorable, row.correct) for row in rows] == [
        ("unreachable", True, 0),
        ("refused", False, 0),
        ("answered", False, 1),
    ]
    summary = summarize(rows)["math500"]
    assert (summary.accuracy.mean, summary.accuracy.n, summary.unscorable, summary.rows) == (0.5, 2, 1, 3)


def test_a_fast_writer_waits_for_its_workers() -> None:
    class Slow(Table):
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
        ) -> Response:
            await asyncio.sleep(0.02)
            return await super().complete(worker, messages, sample=sample)

    class Counting(Fixed):
        def write(self, prompts: Sequence[Sequence[Message]], **settings: Any) -> list[str]:
            ahead.append(len(self.calls) - len(client.samples))
            return super().write(prompts, **settings)

    ahead, client = list[int](), Slow()
    rows = run(Counting(ALONE), problems(20), client, batch=1)
    assert [row.correct for row in rows] == [1] * 20
    assert 1 < max(ahead) <= MAX_BATCHES_IN_PROGRESS


def test_batches_repeats_and_progress() -> None:
    writer, client, batches = Fixed(ALONE), Table(), []
    settings = Evaluation(repeats=2, batch=2, temperature=0.5)
    team = Team(WORKERS, client, PROMPTING)
    rows = asyncio.run(
        evaluate(writer, problems(5), team, settings, seed=40, on_executed=lambda batch, _: batches.append(len(batch)))
    )
    assert writer.calls == [(size, 0.5, seed) for seed in (40, 41) for size in (2, 2, 1)]
    assert [(row.problem_id, row.repeat) for row in rows] == [(f"p{i}", r) for i in range(5) for r in range(2)]
    assert sorted(client.samples) == [0] * 5 + [1] * 5
    assert batches == [2, 2, 1, 2, 2, 1]
    assert summarize(rows)["math500"].accuracy.n == 5


class Drawn(Fixed):
    """A writer whose workflows depend on the seed: the number of the workflow."""

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        self.calls.append((len(prompts), temperature, seed))
        return [self.completions[seed]] * len(prompts)


TWO_OF_THREE: Any = {"vote": {"workflows": 3, "agree": 2}}


GUESS = Workflow.single(1).render()


@pytest.mark.parametrize(
    ("written", "vote", "asked", "correct"),
    [
        ((ALONE, ALONE), {"workflows": 3, "agree": 2}, 2, 1),  # the first two agree
        ((GUESS, ALONE, ALONE), {"workflows": 3, "agree": 2}, 3, 1),  # the third decides
        ((GUESS, ALONE, "nothing", ALONE), {"workflows": 4, "agree": 2}, 4, 1),  # an invalid one has no vote
        ((GUESS, ALONE), {"workflows": 2, "agree": 2}, 2, 0),  # of equals the one given first
        (("nothing", ALONE), {"workflows": 2}, 2, 1),  # any answer before none
        ((GUESS, GUESS, ALONE, ALONE, ALONE), {"workflows": 5}, 5, 1),  # more than half
        (("nothing", "nothing"), {"workflows": 2}, 2, 0),
    ],
)
def test_workflows_vote_until_enough_agree(
    written: tuple[str, ...], vote: dict[str, int], asked: int, correct: int
) -> None:
    writer, client = Drawn(*written), Table()
    [row] = run(writer, [problem(0)], client, vote=vote)  # type: ignore[arg-type]
    assert writer.calls == [(1, 0.0 if number == 0 else 0.7, number) for number in range(asked)]
    valid = [number for number in range(asked) if written[number] != "nothing"]
    assert client.samples == valid  # answers of its own for each workflow
    assert (row.correct, row.steps, len(row.workers)) == (correct, len(valid), len(valid))
    assert row.cost_usd == pytest.approx(0.001 * len(valid))


def test_a_vote_takes_the_time_of_its_waves_and_each_repeat_has_other_samples() -> None:
    writer, client = Drawn(GUESS, ALONE, ALONE, ALONE, ALONE, ALONE), Table()
    first, second = run(writer, [problem(0)], client, repeats=2, **TWO_OF_THREE)
    assert (first.latency_s, second.latency_s) == (pytest.approx(1.0), pytest.approx(0.5))  # two waves, one
    assert sorted(client.samples) == [0, 1, 2, 3, 4] and sorted(seed for *_, seed in writer.calls) == [0, 1, 2, 3, 4]


def test_questions_of_a_set_vote_each_for_itself() -> None:
    class Sometimes(Table):
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
        ) -> Response:
            odd = messages[0]["content"].startswith("Question 1") and Sample.of(sample).index == 0
            return await super().complete(WORKERS[1] if odd else worker, messages, sample=sample)

    client = Sometimes()
    rows = run(Drawn(ALONE, ALONE, ALONE), problems(3), client, **TWO_OF_THREE)
    assert [(row.correct, row.steps) for row in rows] == [(1, 2), (1, 3), (1, 2)]


def test_a_vote_in_which_a_worker_is_unreachable_is_unscorable() -> None:
    class Away(Table):
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
        ) -> Response:
            if Sample.of(sample).index == 1:
                raise WorkerUnreachable("timed out")
            return await super().complete(worker, messages, sample=sample)

    [row] = run(Drawn(ALONE, ALONE, ALONE), [problem(0)], Away(), **TWO_OF_THREE)
    assert row.unscorable and row.correct == 0


def test_a_spent_budget_ends_the_evaluation() -> None:
    client = Table({"Question 1": OverBudget("cap reached")})
    with pytest.raises(OverBudget, match="cap reached"):
        run(Fixed(ALONE), problems(6), client, batch=2)


def test_nothing_to_do(tmp_path: Path) -> None:
    assert run(Fixed(ALONE), []) == []
    assert summarize([]) == {}
    save_rows([], tmp_path / "rows.parquet")
    assert load_rows(tmp_path / "rows.parquet") == []


def test_summary_by_hand() -> None:
    rows = run(Fixed(ALONE, TOGETHER, "no"), problems(3))
    summary = summarize(rows)["math500"]
    assert summary.accuracy.mean == pytest.approx(2 / 3)
    assert summary.accuracy.standard_error == pytest.approx(1 / 3)  # √(2/9 · 3/2) / √3
    assert summary.format_compliance == pytest.approx(2 / 3)
    assert summary.multi_worker_share == 0.5
    assert summary.steps == 1.5
    assert summary.values["tokens"] == 15


def test_all_unscorable_gives_no_number() -> None:
    rows = [replace(row, unscorable=True) for row in run(Fixed(ALONE), [problem(0)])]
    summary = summarize(rows)["math500"]
    assert math.isnan(summary.accuracy.mean) and math.isnan(summary.values["tokens"]) and summary.unscorable == 1


def test_rows_survive_the_disk_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ROWS_PER_PART", 2)
    rows = run(Fixed(TOGETHER, "no"), problems(5))
    file = tmp_path / "deep" / "rows.parquet"
    save_rows(list(reversed(rows)), file)
    assert load_rows(file) == rows
    assert sorted(path.name for path in file.parent.iterdir()) == ["rows.parquet", "rows.parquet.sha256"]
    assert pq.ParquetFile(file).num_row_groups == 3
    save_rows(rows, file, texts=False)
    assert {row.answer + row.completion for row in load_rows(file)} == {""}
    assert [row.correct for row in load_rows(file)] == [row.correct for row in rows]


def test_files_that_do_not_contain_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_rows(tmp_path / "rows.parquet")
    (tmp_path / "text.parquet").write_text("no parquet", encoding="utf-8")
    write_digest(tmp_path / "text.parquet")
    with pytest.raises(DataError, match="is not a readable Parquet file"):
        load_rows(tmp_path / "text.parquet")


def test_rows_and_summary_contain_the_strategy(tmp_path: Path) -> None:
    rows = run(Fixed(ALONE, TOGETHER, "I would rather not.", TOGETHER), problems(4))
    assert [(row.shape, row.pattern) for row in rows] == [
        ("single", "0"), ("verify_last", "1 0<0"), ("", ""), ("verify_last", "1 0<0"),
    ]  # fmt: skip
    save_rows(rows, tmp_path / "rows.parquet")
    summary = summarize(load_rows(tmp_path / "rows.parquet"))["math500"]
    assert summary.shapes == {"single": 1, "verify_last": 2}
    assert summary.patterns == {"0": 1, "1 0<0": 2}


def test_the_error_of_a_prompt_that_is_too_long_names_its_problem() -> None:
    class Short(Fixed):
        def write(self, prompts: Sequence[Sequence[Message]], **_: object) -> list[str]:  # type: ignore[override]
            raise PromptTooLongError("prompt 1", 900, 300, index=1)

    with pytest.raises(PromptTooLongError, match=r"math500 problem p1: .* 900 tokens.* 300 before") as caught:
        run(Short(ALONE), [problem(0), problem(1)])
    assert "Question 1" not in str(caught.value)


class Writing(Fixed):
    """A writer that records its prompts, and writes a different text each time."""

    def __init__(self) -> None:
        super().__init__("")
        self.prompts: list[str] = []

    def write(self, prompts: Sequence[Sequence[Message]], **_: object) -> list[str]:  # type: ignore[override]
        self.prompts += [prompt[0]["content"] for prompt in prompts]
        return [f"text {len(self.prompts) - len(prompts) + i}" for i in range(len(prompts))]


def chats(*texts: str) -> list[list[Message]]:
    return [[{"role": "user", "content": text}] for text in texts]


def test_a_stored_text_is_not_generated_again(tmp_path: Path) -> None:
    inner = Writing()
    writer = StoredWriter(inner, "policy", tmp_path)
    assert writer.write(chats("a", "b", "a"), temperature=1.0, seed=1) == ["text 0", "text 1", "text 0"]
    again = StoredWriter(inner, "policy", tmp_path)
    assert again.write(chats("c", "b", "a"), temperature=1.0, seed=1) == ["text 2", "text 1", "text 0"]
    assert inner.prompts == ["a", "b", "c"]
    assert again.write(chats("a"), temperature=1.0, seed=2) == ["text 3"]
    assert again.write(chats("a"), temperature=0.5, seed=1) == ["text 4"]
    assert again.write(chats("a"), seed=1) == again.write(chats("a"), seed=2) == ["text 5"]
    assert StoredWriter(inner, "other", tmp_path).write(chats("a"), seed=1) == ["text 6"]


def test_the_index_of_a_prompt_that_is_too_long_counts_stored_ones(tmp_path: Path) -> None:
    class Short(Writing):
        def write(self, prompts: Sequence[Sequence[Message]], **_: object) -> list[str]:  # type: ignore[override]
            if len(prompts) > 1:
                raise PromptTooLongError("prompt", 900, 300, index=1)
            return super().write(prompts)

    writer = StoredWriter(Short(), "policy", tmp_path)
    writer.write(chats("a"))
    with pytest.raises(PromptTooLongError) as caught:
        writer.write(chats("a", "b", "c"))
    assert caught.value.index == 2


def test_weights_that_were_trained_again_have_another_identity(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("1", encoding="utf-8")
    first = policy_id(tmp_path)
    assert policy_id(tmp_path) == first
    (tmp_path / "weights").write_text("22", encoding="utf-8")
    assert policy_id(tmp_path) != first


def evaluated(folder: Path, client: Table, writer: Writer | None = None) -> list[OutcomeRow]:
    """Evaluate six problems twice into a score file; return its rows."""
    file = folder / "math500.parquet"
    with RowSorter() as rows:
        running = evaluate(
            writer or Fixed(ALONE), problems(6), Team(WORKERS, client, PROMPTING),
            Evaluation(repeats=2, batch=2), add_rows=rows.add,
        )  # fmt: skip
        asyncio.run(running)
        rows.write({"math500": (file, {"policy": "p"})})
    return load_rows(file)


def test_rows_that_come_in_any_order_are_written_in_one(tmp_path: Path) -> None:
    rows = evaluated(tmp_path, Table())
    assert [(row.problem_id, row.repeat) for row in rows] == [(f"p{n}", r) for n in range(6) for r in range(2)]
    again = random.Random(1).sample(rows, len(rows))
    with RowSorter() as sorter:
        for row in again:
            sorter.add([row])
        assert (list(sorter), len(sorter), list(sorter.rows_of_benchmark("mmlu"))) == (rows, 12, [])


def test_an_evaluation_that_ends_in_an_error_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    folder.mkdir()
    with pytest.raises(OverBudget):
        evaluated(folder, Table({"Question 5": OverBudget("cap reached")}))
    assert list(folder.iterdir()) == []
    assert evaluated(folder, Table()) == evaluated(tmp_path / "whole", Table())
    assert sorted(file.name for file in folder.iterdir()) == ["math500.parquet", "math500.parquet.sha256"]


def test_an_evaluation_continues_with_stored_completions(tmp_path: Path) -> None:
    inner = Fixed(ALONE)

    def written(client: Table) -> int:
        """Evaluate, and return the number of prompts for which a completion was written."""
        before = sum(count for count, *_ in inner.calls)
        made.append(evaluated(tmp_path, client, StoredWriter(inner, "policy", tmp_path)))
        return sum(count for count, *_ in inner.calls) - before

    made: list[list[OutcomeRow]] = []
    with pytest.raises(OverBudget):
        written(Table({"Question 3": OverBudget("cap reached")}))
    assert [written(Table()) for _ in range(2)] == [0, 0], "at temperature 0, repeats have one completion"
    assert made[0] == made[1]


@pytest.mark.long
def test_kills_repeat_no_text_and_no_call(tmp_path: Path) -> None:
    made = measure(200, tmp_path, kills=2)
    assert (made.rows, made.distinct_rows, made.kills, made.accuracy) == (200, 200, 2, 0.5)
    assert (made.repeated_texts, made.repeated_calls) == (0, 0)
    assert 400 <= made.texts + made.calls <= 400 + made.lost_in_flight
