"""`python -m pipelines.recursion`, what `make recursion` calls: the quickstart in rounds, as a table in docs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from assets.resources import Podium
from ops.benchmarks.raw import evaluation_questions
from ops.conductor.policy import Conductor
from ops.config import TRAINING_BENCHMARKS, UNSEEN_BENCHMARKS, Execution, Recipe, Recursion, Setup
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.rounds import Depth, in_rounds, under
from ops.precaching.opening import open_client
from ops.training.plan import RunResult
from ops.training.recursive import recursive_policy
from ops.training.telemetry import silence
from ops.workflow.recursion import RecursiveTrace
from pipelines.pages import write_between

FILE = Path("docs") / "results.md"
MARK = "<!-- made by `make recursion` -->"
CAP = 8
"""The "unbounded" depth's cap."""
NO_BUDGET = 5.0 * (CAP + 1)
"""Times the first round's calls: more than workflows of five steps can make in all rounds."""
SHOWN = 48
"""Tokens of a final response that the small policy is shown: its context holds 384 of its own."""
TEMPERATURES = (0.0, 1.0)
DEPTHS = {
    **{str(rounds): Recursion(rounds=rounds, calls_ratio=NO_BUDGET) for rounds in range(4)},
    f"unbounded (cap {CAP})": Recursion(rounds=CAP, calls_ratio=NO_BUDGET),
    f"cap {CAP}, at most twice the calls": Recursion(rounds=CAP),
}
"""What the rows are called, and the limits that each of them shows."""


def main() -> int:
    """Teach, ask, and write the table between its marks in docs/results.md. Returns the exit status."""
    silence()
    import warnings

    import dagster as dg

    warnings.simplefilter("ignore", dg.BetaWarning)  # as in `pipelines.run`
    from assets.conductor import run_folder

    try:
        workspace = Workspace.find()
        podium = Podium(root=str(workspace.root))
        setup, folder = podium.load(), run_folder(podium)
        if RunResult.read(folder) is None:
            raise PodiumError(f"{folder.name} has no trained Conductor. Run `make run` first")
        table = "\n".join(demonstrate(setup, folder / "policy"))
    except (PodiumError, FileNotFoundError) as error:
        Console(stderr=True, highlight=False).print(f"error: {error}", markup=False, soft_wrap=True)
        return 1
    write_between(workspace.root / FILE, MARK, table)
    print(f"written to {FILE}")
    return 0


def demonstrate(setup: Setup, policy: Path) -> list[str]:
    """The table's lines, for a trained policy that has never seen a recursive round."""
    taught = recursive_policy(setup, policy, open_client(setup, "training"), _free(setup.recipe), _say)
    lines = _head()
    for temperature in TEMPERATURES:
        traces, questions = _rounds(setup, taught, temperature)
        for name, limits in DEPTHS.items():
            lines.append(_row(f"{temperature:.1f}", name, traces, questions, limits))
    return lines


def _free(recipe: Recipe) -> Execution:
    """As the recipe says, in as many rounds as are ever shown."""
    recursion = Recursion(rounds=CAP, calls_ratio=NO_BUDGET, answer_tokens=SHOWN)
    return recipe.execution.model_copy(update={"recursion": recursion})


def _rounds(setup: Setup, policy: Path, temperature: float) -> tuple[list[RecursiveTrace], list[Problem]]:
    conductor = Conductor.load(policy)
    questions = [one for asked in evaluation_questions(setup.workspace, setup.recipe).values() for one in asked]
    found = asyncio.run(
        in_rounds(
            conductor,
            questions,
            [setup.pool.worker(name) for name in conductor.card.offered],
            open_client(setup, "evaluation"),
            conductor.card.prompting,
            _free(setup.recipe),
            lambda done, total: _say(done, total, f"questions at temperature {temperature}"),
            cards=conductor.card.cards,
            temperature=temperature,
            seed=setup.recipe.seed,
        )
    )
    return found, questions


def _head() -> list[str]:
    names = [
        "temperature", "depth", "in-domain mean", "unseen mean", "calls a question", "USD a question",
        "kept", "loop", "invalid", "cap", "budget",
    ]  # fmt: skip
    return [f"| {' | '.join(names)} |", f"| {' | '.join(['---'] * len(names))} |"]


def _row(
    temperature: str,
    name: str,
    traces: Sequence[RecursiveTrace],
    questions: Sequence[Problem],
    limits: Recursion,
) -> str:
    def over(benchmarks: Sequence[str]) -> Depth:
        chosen = [i for i, question in enumerate(questions) if question.benchmark in benchmarks]
        return under([traces[i] for i in chosen], [questions[i] for i in chosen], limits)

    seen, unseen, whole = over(TRAINING_BENCHMARKS), over(UNSEEN_BENCHMARKS), under(traces, questions, limits)
    cells = [
        temperature,
        name,
        *(f"{100 * one.accuracy.mean:.1f} ± {100 * one.accuracy.standard_error:.1f}" for one in (seen, unseen)),
        f"{whole.calls:.2f}",
        f"{whole.cost_usd:.6f}",
        *(str(whole.stops[stop]) for stop in ("kept", "loop", "invalid", "cap", "budget")),
    ]
    return f"| {' | '.join(cells)} |"


def _say(done: int, total: int, note: str) -> None:
    print(f"  {done:6,} of {total:,} {note}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
