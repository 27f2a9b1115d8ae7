"""Baselines without a learned router, on workers whose answers are a table."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from ops.conductor.untrained import WRITE_SUBTASK
from ops.config import Evaluation, Worker, load_recipe
from ops.core.errors import WorkerRefused, WorkerUnreachable
from ops.core.installation import resources_folder
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.status import Status
from ops.core.usage import Usage
from ops.evaluation.baseline import BASELINES, SoloResponses, WorkflowBaseline, collect_scores
from ops.evaluation.baselines import best_static
from ops.evaluation.baselines.best_static import TRIED_PROBLEMS, list_candidates, sample_problems
from ops.evaluation.method import Method, TrainingData
from ops.evaluation.runner import evaluate_method
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import summarize
from ops.workflow.few_shots import FewShot, FewShotStep
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.team import Team
from tests.bench.baselines import scores_table

NAMES = ("ada", "bob", "cid")
ALONE = {"ada": 0.25, "bob": 0.75, "cid": 0.5}
"""Each worker's accuracy on the mix: bob is the best."""
Say = Callable[[str, Sequence[Message], Sample], str]


def problem(i: int, benchmark: str = "math500", **fields: str) -> Problem:
    values = {"domain": "math", "split": "test", "question": f"Question {i}?", "answer": "7", "grader": "math"}
    return Problem(id=f"p{i}", benchmark=benchmark, **{**values, **fields})  # type: ignore[arg-type]


class Client:
    """Answers by `say`: worker, messages and sample → text."""

    def __init__(self, say: Say = lambda worker, messages, sample: boxed(7)) -> None:
        self.say = say
        self.asked: list[tuple[str, Sequence[Message], Sample]] = []

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        await asyncio.sleep(0)
        self.asked.append((worker.name, messages, Sample.of(sample)))
        return Response(self.say(worker.name, messages, Sample.of(sample)), Usage(10, 5), 0.001, 0.5, "stop")


def boxed(value: object) -> str:
    return f"So it is \\boxed{{{value}}}."


def team(client: Client, names: Sequence[str] = NAMES) -> Team:
    return Team([Worker(name=name, model=f"local/{name}") for name in names], client)


def evaluated(method: Method, problems: Sequence[Problem], client: Client, repeats: int = 1) -> list[OutcomeRow]:
    return asyncio.run(evaluate_method(method, problems, team(client), Evaluation(repeats=repeats)))


SILENT = Response("", Usage(10, 5), 0.001, 0.5, "stop")


def known(client: Client, mix: Sequence[Problem] = (), names: Sequence[str] = NAMES, seed: int = 1) -> TrainingData:
    rows = [
        ResponseRow(name, "math500", str(i), 0, "ok", SILENT, float(i < 4 * share))
        for name in names
        for i, share in ((i, ALONE.get(name, 0.1)) for i in range(4))
    ]

    def run(method: Method, problems: Sequence[Problem]) -> list[OutcomeRow]:
        return asyncio.run(evaluate_method(method, problems, team(client, names), Evaluation()))

    return TrainingData(team(client, names), mix, rows, seed, run, (EXAMPLE,))


EXAMPLE = FewShot(kind="x", question="Which?", reasoning="Because.", steps=(FewShotStep(worker=0, subtask="Do it."),))


def entry_of(name: str) -> WorkflowBaseline:
    entry = BASELINES[name]
    assert isinstance(entry, WorkflowBaseline)
    return entry


def asks(name: str, client: Client, mix: Sequence[Problem] = ()) -> Method:
    return entry_of(name).prepare(known(client, mix))


# ── one worker, five calls ───────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["five_reflection", "five_context", "five_consensus", "solve_then_check"])
def test_the_mixs_best_worker_gets_the_planned_number_of_calls(name: str) -> None:
    client = Client()
    method = asks(name, client)
    [row] = evaluated(method, [problem(0)], client)
    calls = entry_of(name).calls_per_question(3)
    assert (row.correct, row.steps, method.detail) == (1, calls, "bob")
    assert [worker for worker, _, _ in client.asked] == ["bob"] * int(calls)


@pytest.mark.parametrize("name", ["five_reflection", "five_context"])
def test_each_call_sees_all_the_answers_before_it(name: str) -> None:
    client = Client(lambda worker, messages, sample: boxed(len(messages) // 2))
    [row] = evaluated(asks(name, client), [problem(0, answer="4")], client)
    shown = [[m["content"] for m in messages if m["role"] == "assistant"] for _, messages, _ in client.asked]
    assert shown == [[boxed(i) for i in range(seen)] for seen in range(5)]
    assert row.correct == 1, "the last answer counts"
    subtasks = {messages[-1]["content"].rpartition("Subtask: ")[2] for _, messages, _ in client.asked}
    assert len(subtasks - {SOLVE_SUBTASK}) == (name == "five_reflection")


def votes(*texts: str) -> Client:
    return Client(lambda worker, messages, sample: texts[sample.repetition])


@pytest.mark.parametrize(
    ("said", "correct"),
    [
        (("8", "7", "9", "7", "6"), 1),
        (("7", "8", "8", "9", "7"), 1),  # a tie: the first answer wins
        (("8", "7", "7", "8", "9"), 0),
        (("8", "8", "\\frac{14}{2}", "7.0", "7"), 1),  # one answer in three spellings
    ],
)
def test_the_answer_of_most_counts(said: tuple[str, ...], correct: int) -> None:
    client = votes(*map(boxed, said))
    [row] = evaluated(asks("five_consensus", client), [problem(0)], client)
    assert row.correct == correct
    assert (row.steps, row.latency_s) == (5, pytest.approx(0.5))


def test_workers_without_an_answer_do_not_vote() -> None:
    client = votes("", "", "", boxed(8), boxed(7))
    method = asks("five_consensus", client)
    [row] = evaluated(method, [problem(0)], client)
    assert row.answer == boxed(8)
    [silent] = evaluated(method, [problem(1)], votes(*[""] * 5))
    assert (silent.correct, silent.answer, silent.status) == (0, "", "empty")


def test_the_vote_does_not_depend_on_the_gold_answer() -> None:
    said = [boxed(value) for value in (8, 7, 8, 7, 9)]
    answers = {evaluated(asks("five_consensus", votes(*said)), [problem(0, answer=gold)], votes(*said))[0].answer
               for gold in ("7", "8", "9\n8")}  # fmt: skip
    assert answers == {boxed(8)}


# ── a mixture ────────────────────────────────────────────────────────────────


def test_every_worker_proposes_and_one_of_them_sees_all() -> None:
    client = Client(lambda worker, messages, sample: boxed(worker if len(messages) == 1 else 7))
    [row] = evaluated(asks("mixture_of_agents", client), [problem(0)], client)
    *proposals, (_, shown, _) = client.asked
    assert sorted(worker for worker, _, _ in proposals) == sorted(NAMES)
    assert [m["content"] for m in shown if m["role"] == "assistant"] == [boxed(name) for name in NAMES]
    assert (row.correct, row.steps) == (1, 4)


def test_the_aggregator_is_drawn_by_seed_for_every_question_and_repeat() -> None:
    def aggregators(seed: int) -> list[str]:
        method = entry_of("mixture_of_agents").prepare(known(Client(), seed=seed))
        rows = evaluated(method, [problem(i) for i in range(30)], Client(), 2)
        return [row.workers[-1] for row in rows]

    drawn = aggregators(1)
    assert set(drawn) == set(NAMES)
    assert drawn[::2] != drawn[1::2], "another one in another repeat"
    assert drawn == aggregators(1) != aggregators(2)


def test_the_seven_best_workers_of_a_large_pool_propose() -> None:
    names = ("ann", "ada", "bob", "cid", *(f"w{i}" for i in range(5)))
    entry = entry_of("mixture_of_agents")
    [branches] = entry.prepare(known(Client(), names=names)).branches([problem(0)], 0)
    workers = [step.worker for step in branches[0].steps]
    assert len(workers) == entry.calls_per_question(9) == 8
    assert {1, 2, 3} < set(workers[:7]) and workers[7] in workers[:7]


@pytest.mark.parametrize(
    ("said", "asked", "correct"),
    [
        (("7", "7"), 2, 1),
        (("8", "7", "\\frac{14}{2}"), 3, 1),
        (("8", "8", "7", "7", "7"), 2, 0),  # two agree: no other is asked
        (tuple("12345687"), 8, 0),  # none agree: the first counts
    ],
)
def test_samples_are_drawn_until_two_agree(said: tuple[str, ...], asked: int, correct: int) -> None:
    client = votes(*map(boxed, said))
    method = asks("until_agreed", client)
    [row] = evaluated(method, [problem(0)], client)
    assert (row.steps, row.correct, len(client.asked), method.detail) == (asked, correct, asked, "bob")
    assert row.latency_s == pytest.approx(0.5 * (asked - 1))  # two at once, then one at a time


# ── the best static workflow ─────────────────────────────────────────────────

MIX = [problem(i, benchmark, split="train", domain=benchmark) for benchmark in ("math500", "rlpr") for i in range(9)]


def test_the_best_on_the_mix_is_chosen_without_the_test() -> None:
    """Only cid, who sees bob's answer, is right: no worker alone, no vote, no other pair."""

    def say(worker: str, messages: Sequence[Message], sample: int) -> str:
        bobs = [m["content"] for m in messages if m["role"] == "assistant"] == [boxed("bob")]
        return boxed(7 if worker == "cid" and bobs else worker)

    client = Client(say)
    method = asks("best_static", client, MIX)
    assert method.detail == "bob, checked by cid"
    mix = {p.question for p in MIX}
    assert {messages[0]["content"].partition("\n")[0] for _, messages, _ in client.asked} <= mix
    [row] = evaluated(method, [problem(99)], client)
    assert (row.correct, row.workers) == (1, ("bob", "cid"))


def test_the_cheapest_of_equals_is_chosen() -> None:
    assert asks("best_static", Client(), MIX).detail == "bob", "one call, and the first of them"


@pytest.mark.parametrize("names", [("bob",), ("ada", "bob"), NAMES])
def test_the_set_makes_at_most_the_planned_calls_for_any_pool(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(best_static, "TRIED_PROBLEMS", 12)
    client, entry = Client(), entry_of("best_static")
    entry.prepare(known(client, [problem(i, split="train") for i in range(12)], names))
    alone = [messages for _, messages, sample in client.asked if len(messages) == 1 and sample == Sample()]
    assert len(client.asked) == entry.learning_calls(len(names)) + 12 * len(names) >= len(alone)
    assert all(
        candidate.calls <= entry.calls_per_question(len(names))
        for candidate in list_candidates(range(len(names)), names)
    )


def test_domains_weigh_the_same_in_the_sample() -> None:
    mix = [problem(i, domain=domain) for domain, count in (("math", 300), ("code", 100)) for i in range(count)]
    drawn = sample_problems(mix, 1)
    assert Counter(p.domain for p in drawn) == {"math": TRIED_PROBLEMS // 2, "code": TRIED_PROBLEMS // 2}
    assert drawn == sample_problems(mix[::-1], 1) != sample_problems(mix, 2)


# ── a prompted conductor ─────────────────────────────────────────────────────

WORKFLOW = Workflow((Step(0, SOLVE_SUBTASK), Step(2, "Check.", "all")))


def writes(text: str) -> Say:
    return lambda worker, messages, sample: text if messages[-1]["content"].endswith(WRITE_SUBTASK) else boxed(7)


def test_generated_workflows_are_executed_and_their_generation_is_paid_for() -> None:
    client = Client(writes(f"I think.\n{WORKFLOW.render()}"))
    method = asks("prompted_conductor", client)
    [row] = evaluated(method, [problem(0)], client)
    (author, prompt, _), *steps = client.asked
    assert (author, [worker for worker, _, _ in steps]) == ("bob", ["ada", "cid"])
    assert "Question 0?" in prompt[0]["content"] and "Model 2" in prompt[0]["content"]
    assert "Which?" in prompt[0]["content"], "the worked example"
    assert (row.correct, row.format_ok, row.steps, row.workers) == (1, True, 2, ("ada", "cid"))
    assert (row.cost_usd, row.tokens, row.latency_s) == (pytest.approx(0.003), 45, pytest.approx(1.5))
    assert [use.worker for use in row.usage] == ["ada", "cid", "bob"]
    assert (row.completion, row.shape) == (f"I think.\n{WORKFLOW.render()}", "verify_last")


def test_an_invalid_workflow_is_wrong_and_counted() -> None:
    client = Client(writes("model_id = [7]\nsubtasks = ['x']\naccess_list = [[]]"))
    [row] = evaluated(asks("prompted_conductor", client), [problem(0)], client)
    assert (row.correct, row.format_ok, row.failure, row.status) == (0, False, "unknown_worker", Status.NO_WORKFLOW)
    assert (row.steps, row.answer, row.unscorable, len(client.asked)) == (0, "", False, 1)
    assert row.cost_usd == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("error", "status", "unscorable"),
    [(WorkerRefused("bob", "no"), "refused", False), (WorkerUnreachable("bob", "gone"), "unreachable", True)],
)
def test_an_author_that_fails(error: Exception, status: str, unscorable: bool) -> None:
    def say(worker: str, messages: Sequence[Message], sample: int) -> str:
        raise error

    [row] = evaluated(asks("prompted_conductor", Client()), [problem(0)], Client(say))
    assert (row.correct, row.status, row.unscorable, row.steps) == (0, status, unscorable, 0)


# ── each worker ──────────────────────────────────────────────────────────────


def test_each_worker_is_a_column_only_where_a_recipe_asks() -> None:
    rows = known(Client()).responses
    made = collect_scores(SoloResponses(rows, rows), ["each_worker", "oracle"])
    accuracies = {head: scores["math500"].accuracy.mean for head, scores in made.items()}
    assert accuracies == {"alone (ada)": 0.25, "alone (bob)": 0.75, "alone (cid)": 0.5} | {
        "oracle (upper bound)": 0.75, "oracle (by chance)": pytest.approx(0.8, abs=0.2),
    }  # fmt: skip
    assert list(collect_scores(SoloResponses(rows, rows))) == [
        "best worker (bob)",
        "random worker",
        *list(accuracies)[3:],
    ]


def test_every_baseline_that_asks_says_where_it_is_from_and_what_differs() -> None:
    for entry in BASELINES.values():
        if isinstance(entry, WorkflowBaseline):
            assert entry.source and entry.differences.endswith("."), entry.name
            assert entry.calls_per_question(1) <= entry.calls_per_question(9) and entry.learning_calls(9) >= 0
            assert not entry.is_default, "nothing is asked unless a recipe says so"


def test_the_recipe_of_the_reproduction_names_them_in_the_tables_order() -> None:
    names = load_recipe(resources_folder() / "config", "reproduction").evaluation.baselines
    assert names is not None and len(names) == len(set(names)) >= 11
    assert list(names) == [name for name in BASELINES if name in names]


def test_scores_as_a_table_count_the_calls_of_those_that_ask() -> None:
    client = Client()
    asked = {"five_context": evaluated(asks("five_context", client), [problem(0), problem(1)], client)}
    made = {
        "oracle": collect_scores(SoloResponses(known(client).responses, known(client).responses), ["oracle"]),
        "five_context": {"5 × context (bob)": summarize(asked["five_context"])},
    }
    head, _, oracle, _, five = scores_table(made, asked).splitlines()
    assert head.startswith("| system | in-domain, %")
    assert [cell.strip() for cell in oracle.split("|")[1:3]] == ["oracle (upper bound)", "75.0 (30.1 … 95.4)"]
    assert [cell.strip() for cell in five.split("|")[1:-1]] == [
        "5 × context (bob)", "100.0 (34.2 … 100.0)", "–", "0.005000", "75", "5.0",
    ]  # fmt: skip


# ── votes of several workers ─────────────────────────────────────────────────


def by_number(right: dict[str, str]) -> Client:
    """Workers that are right on the problems whose number is named; wrong answers differ."""
    return Client(
        lambda worker, messages, sample: boxed(
            7 if any(f"Question {i}?" in messages[0]["content"] for i in right[worker]) else NAMES.index(worker)
        )
    )


def test_all_workers_vote_once_and_a_tie_goes_to_the_best() -> None:
    client = by_number({"ada": "01", "bob": "02", "cid": "1"})
    method = asks("consensus", client)
    rows = evaluated(method, [problem(i) for i in range(4)], client)
    assert [row.correct for row in rows] == [1, 1, 1, 0], "two of three; bob is the best and breaks the tie on 2"
    assert sorted(worker for worker, _, _ in client.asked) == sorted(NAMES * 4)
    assert [row.cost_usd for row in rows] == [pytest.approx(0.003)] * 4


def test_the_best_static_vote_is_the_best_on_the_mix_and_the_cheaper_of_equals() -> None:
    mix = [problem(i) for i in range(4)]
    together = by_number({"ada": "013", "bob": "012", "cid": "023"})
    assert asks("static_vote", together, mix).detail == "bob + cid + ada", "each alone solves three, the vote four"
    assert asks("static_vote", by_number({"ada": "0123", "bob": "0123", "cid": "012"}), mix).detail in ("bob", "ada")
