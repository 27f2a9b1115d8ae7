"""Measure the embedded pool with `python -m tests.bench.landing` (`make landing`) and write the docs.

Every workflow of a fixed set runs on the same questions directly with the embedded workers: the executor composes the
messages (`build_worker_messages`), the real graders grade the answers, and costs are the pool's prices. The best
workflow of a family is chosen on training questions and measured on others.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.registry import ood_benchmarks, training_benchmarks
from ops.config import load_pool
from ops.core.documents import MEASUREMENTS, format_markdown_table, replace_marked_text
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation.baselines.best_static import convert_steps
from ops.grading import configure, grade_many, worker_prompt
from ops.results.leaderboard import format_accuracy
from ops.results.statistics import estimate_mean
from ops.synthetic.families import FAMILIES
from ops.synthetic.flows import (
    CHECK,
    KINDS,
    SOLVE,
    FixedWorkflow,
    build_chain,
    build_mixture,
    build_vote,
    fixed_workflows,
)
from ops.synthetic.generalists import SKILLS, respond
from ops.synthetic.plugin import count_tokens
from ops.synthetic.problems import generate_problems
from ops.synthetic.reading import parse_task
from ops.synthetic.tools import TOOLS
from ops.workflow.execution import build_worker_messages

MARK, TRACED = "<!-- made by `make landing` -->", "<!-- made by `make landing`: traced -->"
POOL = load_pool(Workspace.find().config, "quickstart")
PER_FAMILY = 25
"""Questions of each family: from one seed's training split for the
choice, from another's test split for measurement.
"""


class Result(NamedTuple):
    right: bool
    usd: float


class Bench:
    """Answers and their costs, each computed once."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[str, float]] = {}

    def run(self, problem: Problem, flow: FixedWorkflow, sample: int = 0) -> tuple[str, float]:
        """Return the answer of a workflow to a problem, and its USD."""
        responses: dict[int, str] = {}
        graph = convert_steps(flow.steps, POOL.names)
        usd, asked = 0.0, defaultdict[str, int](int)
        for index, step in enumerate(graph.steps):
            messages = build_worker_messages(graph, index, worker_prompt(problem), responses)
            key = f"{step.worker}{messages}"
            responses[index], price = self._ask(POOL.names[step.worker], messages, Sample(sample, asked[key]))
            asked[key] += 1
            usd += price
        return responses[len(graph.steps) - 1], usd

    def _ask(self, name: str, messages: list[Message], sample: Sample) -> tuple[str, float]:
        key = f"{name}{sample}{messages}"
        if key not in self._answers:
            worker = POOL.worker(name)
            if name in TOOLS:
                answer = TOOLS[name](parse_task(messages))
            else:
                answer = respond(name, messages, sample=sample, temperature=worker.temperature or 1.0).text
            assert worker.price is not None  # the embedded pool states its prices
            usd = worker.price.compute_usd(
                Usage(sum(count_tokens(message["content"]) for message in messages), count_tokens(answer))
            )
            self._answers[key] = answer, usd
        return self._answers[key]


def measure(problems: Sequence[Problem], set_: Sequence[FixedWorkflow]) -> dict[tuple[str, str], Result]:
    """Return (problem's key, flow's name) → outcome."""
    bench = Bench()
    made = {(problem.key, flow.name): (problem, *bench.run(problem, flow)) for problem in problems for flow in set_}
    distinct = {(problem.key, answer): (problem, answer) for problem, answer, _ in made.values()}
    grades = dict(zip(distinct, grade_many(list(distinct.values())), strict=True))
    return {key: Result(grades[problem.key, answer].correct, usd) for key, (problem, answer, usd) in made.items()}


def of_families(benchmarks: Iterable[str], split: str, seed: int) -> list[Problem]:
    """Return `PER_FAMILY` problems of each family of the benchmarks."""
    counts = {name: PER_FAMILY * sum(family.benchmark == name for family in FAMILIES) for name in benchmarks}
    return [problem for name, count in counts.items() for problem in generate_problems(name, split, count, seed)]  # type: ignore[arg-type]


Results = Mapping[tuple[str, str], Result]


def best(results: Results, problems: Sequence[Problem], names: Iterable[str]) -> str:
    """Return the flow with the most right answers; ties go to the cheaper one."""
    return max(
        names,
        key=lambda name: (
            sum(results[p.key, name].right for p in problems),
            -sum(results[p.key, name].usd for p in problems),
        ),
    )


def share(results: Results, problems: Sequence[Problem], *names: str) -> str:
    """Return the percentage of problems that at least one of the flows answers, ± one standard error."""
    return mean_text([float(any(results[p.key, name].right for name in names)) for p in problems])


def mean_text(values: Sequence[float]) -> str:
    """Format a mean in per cent, ± one standard error."""
    return format_accuracy(estimate_mean(values))


def tables() -> str:
    """Return the tables of the pool's accuracies and of the best workflow of each family."""
    configure(Path(), "resource_limits")
    set_ = fixed_workflows()
    known = of_families(training_benchmarks(), "train", 1)
    seen, unseen = (of_families(names, "test", 2) for names in (training_benchmarks(), ood_benchmarks()))
    trained, tested = measure(known, set_), measure([*seen, *unseen], set_)
    by_kind = {kind: [flow.name for flow in set_ if flow.kind == kind] for kind in KINDS}
    singles = by_kind["alone"]
    single = best(trained, known, singles)
    systems, families = [], []

    def row(title: str, target: str, *names: str) -> None:
        systems.append((title, target, share(tested, seen, *names), share(tested, unseen, *names)))

    row(f"best single worker ({single})", "40–55", single)
    four = build_vote("vote", *[single] * 4).name
    row("four answers of that worker, of which the editor chooses the most frequent", "", four)
    five = [voted(problems, single) for problems in (seen, unseen)]
    systems.append(("five answers of that worker, of which the most frequent counts", "+3–8", *five))
    row("that worker answers, then checks its answer", "", build_chain("check", (single, SOLVE), (single, CHECK)).name)
    row("the three generalists answer, then that worker checks", "", build_mixture().name)
    row("oracle over single workers", "65–80", *singles)
    row(f"the best of {len(set_)} workflows, with hindsight", "≥ 90", *(flow.name for flow in set_))
    for family in FAMILIES:
        theirs = [p for p in (*seen, *unseen) if p.family == family.name]
        # The unseen families have no training questions: their best workflow is chosen with hindsight.
        basis, by = ([p for p in known if p.family == family.name], trained)
        if not basis:
            basis, by = theirs, tested
        chosen = {kind: best(by, basis, names) for kind, names in by_kind.items()}
        winner = best(by, basis, chosen.values())
        cells = []
        for name in chosen.values():
            right = 100 * sum(tested[p.key, name].right for p in theirs) / len(theirs)
            cells.append(f"**{right:.0f}**" if name == winner else f"{right:.0f}")
        families.append((family.name, *cells, winner))
    head = ("of the test questions, %", "target", "in-domain", "OOD")
    best_of_each = format_markdown_table(("family", *KINDS.values(), "the winner"), families)
    return f"{format_markdown_table(head, systems)}\n\n{best_of_each}\n"


def voted(problems: Sequence[Problem], name: str) -> str:
    """Measure five samples of one worker alone, with the most frequent graded answer counted."""
    bench, flow = Bench(), build_chain("alone", (name, SOLVE))
    answers = {p.key: [bench.run(p, flow, sample)[0] for sample in range(5)] for p in problems}
    pairs = [(p, answer) for p in problems for answer in answers[p.key]]
    right = {(p.key, answer): grade.correct for (p, answer), grade in zip(pairs, grade_many(pairs), strict=True)}
    values = []
    for p in problems:
        finals = [answer.splitlines()[-1] if "```" not in answer else answer for answer in answers[p.key]]
        common = max(finals, key=lambda final: (finals.count(final), -finals.index(final)))
        values.append(float(right[p.key, answers[p.key][finals.index(common)]]))
    return mean_text(values)


def traced() -> str:
    """Return one wrong answer of each generalist, each with another kind of misstep and its cause."""
    configure(Path(), "resource_limits")
    rows, kinds = [], set[str]()
    for name in SKILLS:
        for problem in of_families(training_benchmarks(), "test", 4):
            if problem.grader == "code":
                continue
            graph = convert_steps(build_chain("alone", (name, SOLVE)).steps, POOL.names)
            messages = build_worker_messages(graph, 0, worker_prompt(problem), {})
            thought = respond(name, messages, temperature=POOL.worker(name).temperature or 1.0)
            new = {step.kind for step in thought.missteps} - kinds
            if len(thought.missteps) == 1 and new and not grade_many([(problem, thought.text)])[0].correct:
                step, kinds = thought.missteps[0], kinds | new
                misstep = f"{step.kind}, {step.where}: {step.what}"
                rows.append((name, problem.question, thought.text, problem.answer, misstep))
                break
    return format_markdown_table(("worker", "question", "its response", "gold", "the misstep"), rows) + "\n"


def main() -> int:
    """Write all tables, or those named on the command line, into files of docs/reference."""
    made = {"landing": (MARK, tables), "traced": (TRACED, traced)}
    for name in sys.argv[1:] or made:
        mark, table = made[name]
        replace_marked_text(Workspace.find().root / MEASUREMENTS, mark, table())
        print(f"{MEASUREMENTS.with_suffix('')}: {name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
