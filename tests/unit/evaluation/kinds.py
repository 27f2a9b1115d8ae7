"""Two kinds of questions without common words, and workers that can answer one kind each, for learned baselines."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ops.config import Evaluation, Worker
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from ops.evaluation.method import Method, TrainingData
from ops.evaluation.runner import evaluate_method
from ops.results.outcome_rows import OutcomeRow
from ops.synthetic.generalists.skills import sample_seed
from ops.workflow.team import NO_CLIENT, Team

WORDS = {
    "fruit": ("apple", "pear", "plum", "cherry", "mango", "peach", "quince", "orchard", "blossom", "harvest"),
    "metal": ("iron", "zinc", "copper", "cobalt", "nickel", "furnace", "ingot", "smelter", "alloy", "rust"),
}
Right = Mapping[str, Mapping[str, float]]
"""Worker → kind → probability of a correct answer."""
SPECIALISTS: Right = {
    "a": {"fruit": 1.0, "metal": 0.0},
    "b": {"fruit": 0.0, "metal": 1.0},
    "c": {"fruit": 0.2, "metal": 0.2},
}


def problems(kinds: Sequence[str], count: int, *, seed: int = 0) -> list[Problem]:
    """Return questions of each kind, each with a few of the kind's words."""
    draw = random.Random(seed)
    made = []
    for kind in kinds:
        for index in range(count):
            question = f"Which of {', '.join(draw.sample(WORDS[kind], 4))}?"
            name = f"{kind}-{seed}-{index}"
            made.append(Problem(name, "rlpr", "text", "train", question, "blue", "text", family=kind))
    return made


def said(worker: str, problem: Problem, right: Right, sample: int | str = 0) -> str:
    """Return a correct answer with the worker's probability; wrong answers differ from each other."""
    draw = random.Random(f"{worker} {problem.key} {sample}")
    return "blue" if draw.random() < right[worker][problem.family] else f"word{draw.randrange(10**6)}"


def response(worker: str, problem: Problem, right: Right, usd: float = 0.001) -> ResponseRow:
    answer = said(worker, problem, right)
    text = Response(f"Answer: {answer}", Usage(10, 5), usd, 0.1, "stop")
    return ResponseRow(worker, problem.benchmark, problem.id, 0, "ok", text, float(answer == "blue"))


class Client:
    """Answers randomly, returns the most common answer on request, and otherwise repeats the last one shown."""

    def __init__(self, asked: Sequence[Problem], right: Right) -> None:
        self.problems = {problem.question: problem for problem in asked}
        self.right, self.calls = right, 0

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        self.calls += 1
        problem = self.problems[messages[0]["content"].partition("\n")[0]]
        earlier = re.findall(r"Answer: (\w+)", "\n".join(each["content"] for each in messages[1::2]))
        answer = said(worker.name, problem, self.right, sample_seed(Sample.of(sample)))
        if earlier and "most common" in messages[-1]["content"]:
            answer = Counter(earlier).most_common(1)[0][0]
        elif earlier and "Solve" not in messages[-1]["content"].rpartition("Subtask:")[2]:
            answer = earlier[-1]
        return Response(f"Answer: {answer}", Usage(10, 5), 0.001, 0.1, "stop")


def known(asked: Sequence[Problem], right: Right, *, seed: int = 1, client: Client | None = None) -> TrainingData:
    """Return the precached responses of these workers to these problems; with a client, methods can run on them."""
    team = Team([Worker(name=name, model=f"local/{name}") for name in right], client or NO_CLIENT)
    responses = [response(name, problem, right) for problem in asked for name in right]

    def run(method: Method, chosen: Sequence[Problem]) -> list[OutcomeRow]:
        return asyncio.run(evaluate_method(method, chosen, team, Evaluation(repeats=1)))

    return TrainingData(team, asked, responses, seed, run)


def accuracy(method: Method, asked: Sequence[Problem], right: Right) -> float:
    """Return the method's score on unseen questions."""
    team = Team([Worker(name=name, model=f"local/{name}") for name in right], Client(asked, right))
    rows = asyncio.run(evaluate_method(method, asked, team, Evaluation(repeats=1)))
    return sum(row.correct for row in rows) / len(rows)
