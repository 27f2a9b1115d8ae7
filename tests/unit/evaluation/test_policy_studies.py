"""Studies of a trained policy: the changes of an arm, and how its rows are made, stored and reused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.benchmarks.problem_files import read_evaluation_questions, write_problems
from ops.conductor.policy import PolicyCard
from ops.config import Evaluation, Execution, Pool, Price, Prompting, Recipe, RoundLimits, Setup, Vote, Worker
from ops.config.studies import UNCHANGED, Samples
from ops.core.errors import DataError, PodiumError
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow, response_file
from ops.core.status import Status
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation.arms import Findings
from ops.evaluation.runner import evaluate
from ops.evaluation.stored_scores import CONDUCTOR, score_file, scores_key
from ops.evaluation.stored_studies import Study, StudyInputs
from ops.evaluation.studies.mechanism_isolation import mechanism_isolation
from ops.evaluation.studies.one_worker import one_worker
from ops.evaluation.studies.strategy_emergence import list_appearances
from ops.evaluation.studies.without_subtasks_served import without_subtasks_served
from ops.evaluation.study import (
    STUDIES,
    FormatCompliance,
    Intervention,
    Observation,
    PolicyStudy,
    TrainingRecord,
    WorkflowChange,
    WorkflowStatistics,
    WrittenCompletion,
    apply_change,
)  # fmt: skip
from ops.precaching.precache import write_responses
from ops.quality.gold import format_gold_response
from ops.results.outcome_rows import OutcomeRow
from ops.results.table import iterate_records, save_rows
from ops.stages.raw_problems import materialize_raw
from ops.stages.studies import policies
from ops.stages.studies.policies import read_untaught_problems
from ops.stages.studies.samples import make_second_round_arm
from ops.stages.studies.study import run_study
from ops.stages.study_context import StudyContext
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.team import Team
from tests.setups import without_workers
from tests.unit.evaluation.test_arms import row as outcome

NAMES = ("ada", "bob", "cid")
INTERVENTIONS = [entry for entry in STUDIES.values() if isinstance(entry, Intervention)]
STEPS = st.tuples(st.integers(0, 2), st.sampled_from(["Solve it.", "Check it.", SOLVE_SUBTASK]), st.booleans())


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    drawn = draw(st.lists(STEPS, min_size=1, max_size=5))
    return Workflow(tuple(Step(worker, say, "all" if sees else "none") for worker, say, sees in drawn))


def fields_that_differ(before: Workflow, after: Workflow) -> set[str]:
    pairs = list(zip(before.steps, after.steps, strict=True))
    names = ("worker", "subtask", "access")
    return {name for name in names if any(getattr(a, name) != getattr(b, name) for a, b in pairs)}


@settings(max_examples=50, deadline=None)
@given(written=st.lists(workflows(), min_size=1, max_size=4), seed=st.integers())
def test_an_arm_makes_workflows_of_workflows_and_changes_one_thing(written: list[Workflow], seed: int) -> None:
    habits, team = (
        WorkflowStatistics.from_workflows(written, NAMES, 0),
        Team([Worker(name=n, model=f"local/{n}") for n in NAMES]),
    )
    may_change = {"all to ": {"worker"}, "workers:": {"worker"}, "wording:": {"subtask"}, "access:": {"access"}}
    for entry in INTERVENTIONS:
        for arm in entry.list_changes(habits):
            allowed = next((value for start, value in may_change.items() if arm.name.startswith(start)), {"subtask"})
            for before in written:
                after = arm.rewrite(before, Random(seed))
                assert after == arm.rewrite(before, Random(seed))
                assert team.parse(after.render()).workflow == after
                assert fields_that_differ(before, after) <= allowed
                assert {step.worker for step in after.steps} <= (
                    {*habits.workers} if entry != one_worker else {0, 1, 2}
                )
                assert {step.subtask for step in after.steps} <= {*habits.subtasks, SOLVE_SUBTASK}


def test_every_worker_has_its_turn_and_the_best_is_named() -> None:
    chain = Workflow((Step(0, "Plan."), Step(2, "Check.", "all")))
    arms = one_worker.list_changes(WorkflowStatistics.from_workflows([chain], NAMES, 1))
    assert [arm.name for arm in arms] == ["all to ada", "all to bob (the best alone, by the mix)", "all to cid"]
    assert arms[1].rewrite(chain, Random(0)) == Workflow((Step(1, "Plan."), Step(1, "Check.", "all")))


def test_workers_are_drawn_in_proportion_to_the_policys_use() -> None:
    written = [Workflow.single(0, "a")] * 3 + [Workflow.single(2, "b")]
    arms = {
        arm.name.partition(":")[0] + arm.name[-5:]: arm
        for arm in mechanism_isolation.list_changes(WorkflowStatistics.from_workflows(written, NAMES, 0))
    }
    dice = Random(1)
    drawn = [arms["workersdrawn"].rewrite(written[0], dice).steps[0].worker for _ in range(2000)]
    assert set(drawn) == {0, 2}
    assert drawn.count(0) / 2000 == pytest.approx(0.75, abs=0.04)
    assert mechanism_isolation.list_changes(WorkflowStatistics.from_workflows([], NAMES, 0)) == []


def test_access_is_frozen_both_ways() -> None:
    written = Workflow((Step(0, "a"), Step(1, "b", "all"), Step(2, "c")))
    none, everything = mechanism_isolation.list_changes(WorkflowStatistics.from_workflows([written], NAMES, 0))[-2:]
    assert [step.access for step in none.rewrite(written, Random(0)).steps] == ["none"] * 3
    assert [step.access for step in everything.rewrite(written, Random(0)).steps] == ["none", "all", "all"]


# ── executed ──────────────────────────────────────────────────────────────────


class Table:
    """`ada` can add, the others say 99; a worker with the subtask "Guess." is wrong."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        said = messages[-1]["content"].rpartition("Subtask: ")[2]
        self.asked.append((worker.name, said))
        answer = "7" if worker.name == "ada" and said != "Guess." else "99"
        return Response(f"\\boxed{{{answer}}}", Usage(10, 5), 0.001, 0.5, "stop")


def problem(place: int) -> Problem:
    return Problem(str(place), "math500", "math", "test", f"What is {place} + 0?", "7", "math")


def team_of(client: Table) -> Team:
    return Team([Worker(name=name, model=f"local/{name}") for name in NAMES], client)


def executed(written: Sequence[WrittenCompletion], team: Team, batch: int = 8) -> list[OutcomeRow]:
    completions = {(each.problem.key, each.repeat): each.text for each in written}
    settings = Evaluation(batch=batch, repeats=1 + max(each.repeat for each in written))
    return asyncio.run(evaluate(completions, list(dict.fromkeys(each.problem for each in written)), team, settings))


def test_changed_completions_are_executed_and_invalid_ones_stay_invalid() -> None:
    client = Table()
    team = team_of(client)
    texts = [Workflow.single(1, "Guess.").render(), "I do not know.", Workflow.single(0, SOLVE_SUBTASK).render()]
    written = [WrittenCompletion(problem(place), 0, text) for place, text in enumerate(texts)]
    other = apply_change(
        written,
        WorkflowChange("to ada", one_worker.list_changes(WorkflowStatistics.from_workflows([], NAMES, 0))[0].rewrite),
        team,
        seed=1,
    )
    assert other.changed_share == 0.5  # ada gave the third one
    rows = executed(other.completions, team, batch=1)
    assert [(row.problem_id, row.correct, row.status) for row in rows] == [
        ("0", 0, "answered"), ("1", 0, Status.NO_WORKFLOW), ("2", 1, "answered"),
    ]  # fmt: skip
    assert client.asked == [("ada", "Guess."), ("ada", SOLVE_SUBTASK)]
    unworded = apply_change(
        written, without_subtasks_served.list_changes(WorkflowStatistics.from_workflows([], NAMES, 0))[0], team, seed=1
    )
    assert executed(unworded.completions, team)[0].workers == ("bob",)


def test_a_repeat_draws_its_own_answers_and_its_own_dice() -> None:
    samples: list[int] = []

    class Client(Table):
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
        ) -> Response:
            samples.append(Sample.of(sample).index)
            return await super().complete(worker, messages, sample=sample)

    written = [WrittenCompletion(problem(0), repeat, Workflow.single(0).render()) for repeat in range(3)]
    rows = executed(written, team_of(Client()))
    assert ([row.repeat for row in rows], sorted(samples)) == ([0, 1, 2], [0, 1, 2])


def test_an_arm_that_writes_no_workflow_is_refused() -> None:
    written = [WrittenCompletion(problem(0), 0, Workflow.single(0).render())]
    wrong = WorkflowChange("to no worker", lambda workflow, dice: Workflow.single(9))
    with pytest.raises(ValueError, match=r"'to no worker'.*unknown_worker"):
        apply_change(written, wrong, team_of(Table()), seed=1)


# ── kept and found ───────────────────────────────────────────────────────────

TRAINED = ("math500", "rlpr")
RECIPE = Recipe.model_validate({
    "name": "small", "pool": "three", "policy": {"kind": "scratch"}, "cold_start": {},
    "benchmarks": {name: {"train": 6, "test": 3} for name in TRAINED} | {"gpqa_diamond": {"test": 2}},
})  # fmt: skip
POOL = Pool(
    name="three",
    workers=tuple(Worker(name=name, model=f"local/{name}", price=Price(input=50, output=100)) for name in NAMES),
)


class With(StudyContext):
    """Uses one client, and trains nothing."""

    def __init__(self, client: Any) -> None:
        super().__init__(trainer=lambda run: pytest.fail(f"{run} was trained"))
        self._client = client

    def open_client(self, setup: Setup, purpose: str) -> Any:
        return self._client


class Scored(NamedTuple):
    """A checkout with a scored policy, whose workflow asks bob to guess."""

    setup: Setup
    policy: Path

    def run(self, name: str, client: Any) -> Findings:
        return study(self.setup, self.policy, STUDIES[name], client)


def study(setup: Setup, policy: Path, entry: PolicyStudy, client: Any) -> Findings:
    return run_study(Study(entry.name, entry), StudyInputs(setup, {"conductor": policy.parent}, policy), With(client))


class Writes:
    """Always generates one text, and can be closed."""

    text = Workflow.single(1, "Guess.").render()

    def __init__(self, card: PolicyCard | None = None) -> None:
        self.card = card

    def has_room(self, messages: Sequence[Message]) -> bool:
        return True

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        return [self.text] * len(prompts)

    def close(self) -> None:
        pass


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scored:
    workspace = Workspace(tmp_path)
    setup = Setup(workspace, RECIPE, POOL)
    for benchmark in RECIPE.benchmarks:
        materialize_raw(without_workers(workspace, RECIPE), benchmark)
    policy = workspace.runs / "small-1" / "policy"
    policy.mkdir(parents=True)
    card = PolicyCard(
        recipe="small", pool=POOL, offered=NAMES, prompting=Prompting(style="compact", few_shots="none"),
        max_completion_tokens=64,
    )  # fmt: skip
    card.write(policy)
    team = card.build_team(POOL, workspace.data, Execution(), Table())
    for benchmark, questions in read_evaluation_questions(workspace, RECIPE).items():
        rows = asyncio.run(evaluate(Writes(), questions, team, RECIPE.evaluation))
        save_rows(rows, score_file(workspace, CONDUCTOR, policy, benchmark), key=scores_key(setup, policy, questions))
    mix = [replace(problem(place), split="train") for place in range(4)]
    write_problems(workspace.data / "training_mix.jsonl", mix)
    for name in NAMES:
        rows = [answer(name, each, float(name == "cid")) for each in mix]
        write_responses(rows, response_file(workspace.data / "responses", name, "math500"))
    monkeypatch.setattr("ops.conductor.writer.load_conductor", lambda *_: Writes(card))
    return Scored(setup, policy)


def answer(worker: str, each: Problem, right: float) -> ResponseRow:
    return ResponseRow(worker, each.benchmark, each.id, 0, "ok", Response("t", Usage(100, 50), 0.5, 1.0, "stop"), right)


class Silent:
    """Fails on every call."""

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        raise AssertionError(f"{worker.name} was asked")


def test_an_experiment_is_run_once_and_then_calls_no_worker(scored: Scored, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Table()
    found = scored.run("one_worker", client)
    assert [row[0] for row in found.summary.rows] == [
        UNCHANGED, "all to ada", "all to bob", "all to cid (the best alone, by the mix)",
    ]  # fmt: skip
    changed_share = found.summary.head.index("changed, %")
    assert [row[changed_share] for row in found.summary.rows] == ["", "100", "0", "100"]
    assert found.picture.startswith(b"\x89PNG")
    questions = sum(map(len, read_evaluation_questions(scored.setup.workspace, RECIPE).values()))
    veiled = 2  # completions of a confidential benchmark are not stored: generated and executed again
    assert len(client.asked) == 3 * questions + veiled
    monkeypatch.setattr(policies, "read_policy_scores", None)  # a call would fail
    assert scored.run("one_worker", Silent()) == found


def test_an_interrupted_study_continues_with_the_missing_arms(scored: Scored) -> None:
    found = scored.run("one_worker", Table())
    place = scored.setup.workspace.scores / "studies" / "one_worker"
    [index] = place.glob("*/study.json")
    index.unlink()
    next((place / "rows").glob("*.parquet")).unlink()
    client = Table()
    assert scored.run("one_worker", client) == found
    assert len(client.asked) == 8 + 2  # one worker's arm, and the completions that are not stored


def test_results_of_another_policy_are_not_used_for_this_one(scored: Scored) -> None:
    scored.run("without_subtasks_served", Table())
    other = scored.policy.parents[1] / "small-2" / "policy"
    other.mkdir(parents=True)
    PolicyCard.read(scored.policy).write(other)
    with pytest.raises(DataError, match=r"small-2.*Materialize benchmark_scores for math500"):
        study(scored.setup, other, without_subtasks_served, Table())


def test_a_policy_that_works_in_rounds_is_refused(scored: Scored) -> None:
    card = PolicyCard.read(scored.policy).model_copy(update={"rounds": RoundLimits()})
    card.write(scored.policy)
    with pytest.raises(PodiumError, match=r"goes on from its own answers.*one_worker cannot be run"):
        scored.run("one_worker", Silent())


def test_a_recipe_whose_workflows_vote_is_refused(scored: Scored) -> None:
    evaluation = scored.setup.recipe.evaluation.model_copy(update={"vote": Vote(workflows=3)})
    recipe = scored.setup.recipe.model_copy(update={"evaluation": evaluation})
    with pytest.raises(PodiumError, match=r"several workflows vote .* Run it on a recipe without `evaluation\.vote`"):
        study(replace(scored.setup, recipe=recipe), scored.policy, one_worker, Silent())


def test_problems_that_were_not_taught_are_those_that_the_mix_left_out(scored: Scored) -> None:
    data = scored.setup.workspace.data
    listed = [replace(problem(place), split="train") for place in range(6)]
    write_problems(data / "shortlist.jsonl", listed)
    assert {each.id for each in read_untaught_problems(scored.setup)} == {"4", "5"}
    write_problems(data / "shortlist.jsonl", listed[:4])
    with pytest.raises(DataError, match=r"shortlist\.jsonl.*no problem outside the training mix"):
        read_untaught_problems(scored.setup)


# ── several workflows of one policy ──────────────────────────────────────────


class SometimesRight:
    """Right with the samples 1 and 2 of each question, and wrong in another way with each other sample."""

    def __init__(self, asked: Mapping[str, Sequence[Problem]]) -> None:
        self.golds = {each.question: format_gold_response(each) for own in asked.values() for each in own}

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        index = Sample.of(sample).index
        [right] = [gold for question, gold in self.golds.items() if question in messages[0]["content"]]
        wrong = f"The answer is \\boxed{{{1000 + index}}}."
        return Response(right if index in (1, 2) else wrong, Usage(10, 5), 0.001, 0.5, "stop")


def test_the_best_and_the_most_frequent_answer_of_several_workflows(scored: Scored) -> None:
    """Also on a confidential benchmark, of whose answers no file holds the text."""
    entry = Samples(kind="samples", title="Several", recipe="small", samples=4)
    client = SometimesRight(read_evaluation_questions(scored.setup.workspace, RECIPE))
    lab = StudyInputs(scored.setup, {"conductor": scored.policy.parent}, scored.policy)
    found = run_study(Study("several", entry), lab, With(client))
    shown = [dict(zip(found.summary.head, row, strict=True)) for row in found.summary.rows]
    percents = {str(row["system"]): (str(row["in-domain, %"])[:5], str(row["OOD, %"])[:5]) for row in shown}
    assert percents == {
        "one workflow at temperature 0.7": ("50.0 ", "50.0 "),
        "a second round that sees the first": ("50.0 ", "50.0 "),  # nothing is known of another question's answers
        "the best of 4": ("100.0", "100.0"),
        "the most frequent answer of 4": ("100.0", "100.0"),
        "the best of 2": ("100.0", "100.0"),
    }
    voted = shown[3]
    assert (voted["right, 25 to 50 % agree, %"], voted["questions, 25 to 50 % agree, %"]) == ("100", "100")
    assert [row["USD a question"] for row in shown] == [
        "0.001000", "0.001000", "0.004000", "0.004000", "0.002000",
    ]  # fmt: skip


def test_a_second_round_replaces_answers_whose_form_is_mostly_wrong() -> None:
    asked = {each.key: replace(each, subject="sums") for each in map(problem, range(4))}

    def share(wrong: str, right: str) -> tuple[float, object]:
        drawn = {
            key: [replace(outcome("math500", int(each.id), at), answer=text) for at, text in enumerate((wrong, right))]
            for key, each in asked.items()
        }
        arm = make_second_round_arm(asked, drawn, "one")
        return fmean(row.correct for row in iterate_records(arm.rows)), arm.extra_columns["replaced, %"]

    assert share("I guess 3", "The sum is 4") == (1.0, 50.0)
    assert share("The sum is 3", "The sum is 4") == (0.5, 0.0), "the form says nothing"


# ── observations ─────────────────────────────────────────────────────────────


def line(step: int, patterns: dict[str, int], **more: Any) -> dict[str, Any]:
    return {"step": step, "reward": 0.5 + step / 10, "patterns": len(patterns), "diversity": 1.0,
            "every_pattern": patterns, "shape/single": 1.0, **more}  # fmt: skip


def test_patterns_stand_in_the_order_in_which_they_appeared() -> None:
    curve = [line(1, {"0": 3, "1": 5}), line(2, {"0": 1, "0 1<0": 2}), line(3, {"0 1<0": 4})]
    made = list_appearances(curve)
    assert [tuple(each) for each in made] == [("1", 1, 5, 0), ("0", 1, 4, 0), ("0 1<0", 2, 6, 4)]


def test_emergence_lists_patterns_by_their_first_step() -> None:
    entry = STUDIES["strategy_emergence"]
    assert isinstance(entry, Observation)
    curve = [line(step, {str(step % 3): 4}) for step in range(1, 21)]
    found = entry.observe(TrainingRecord(curve, 0.7, lambda _: FormatCompliance(0, {})))
    assert "Of every rollout: 3 distinct patterns, the first 3 of them by step 3" in found.note
    assert [row[0] for row in found.summary.rows][:2] == ["1 to 2", "3 to 4"]
    assert [row[4] for row in found.summary.rows] == [2, 1, *[0] * 8]
    assert len(found.details.rows) == 3


def test_a_cold_start_is_validated_with_grpos_sampling_and_greedily() -> None:
    entry = STUDIES["cold_start_validation"]
    assert isinstance(entry, Observation)
    drawn = {0.7: FormatCompliance(100, {"length_mismatch": 6, "empty": 1}), 0.0: FormatCompliance(100, {"empty": 2})}
    found = entry.observe(TrainingRecord((), 0.7, drawn.__getitem__))
    assert [row[2] for row in found.summary.rows] == ["93.0 (86.3 … 96.6)", "98.0 (93.0 … 99.4)"]
    assert [row[3:] for row in found.summary.rows] == [["no", "length_mismatch 6, empty 1"], ["yes", "empty 2"]]
    assert found.details.rows == [["length_mismatch", 6, 0], ["empty", 1, 2]]


def test_unscorable_rows_are_reported(scored: Scored) -> None:
    from ops.core.errors import WorkerUnreachable

    class Away(Table):
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
        ) -> Response:
            if worker.name == "cid":
                raise WorkerUnreachable("cid", "gone")
            return await super().complete(worker, messages, sample=sample)

    assert "8 rows of unreachable workers" in scored.run("one_worker", Away()).note
