"""Gather the evidence of a report from stored results, and the reason for each result that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ops.benchmarks.graded import read_graded_responses
from ops.benchmarks.registry import BENCHMARKS
from ops.conductor.policy import policy_key
from ops.config import Setup
from ops.config.studies import load_studies
from ops.core.digests import DamagedFile, is_lost
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.evaluation.baseline import BASELINES, WorkflowBaseline
from ops.evaluation.comparison import RowsBySystem, list_row_sources
from ops.evaluation.stored_scores import COLD_START, CONDUCTOR
from ops.evaluation.stored_studies import Study, StudyInputs, StudyStore
from ops.evaluation.study import STUDIES
from ops.precaching.profiles import find_best_worker
from ops.reports.evidence import Evidence, Experiment, RunInfo, System, TrainingCost, make_random_worker
from ops.results.summary import grades_by_repeat
from ops.results.table import Rows
from ops.training.run.training_run import PLAN_FILE, RunPlan, RunResult, read_curve

WORKER_PREFIX = "worker "
"""The prefix of the name of a single worker as a system (`ops.evaluation.comparison`)."""
WorkerScores = dict[str, dict[str, list[list[float]]]]


def gather_evidence(setup: Setup, runs: Mapping[str, Path], base_policy: Path) -> Evidence:
    """Gather the evidence about the policy of the last run in `runs` (training stage → folder), or about `base_policy`
    if nothing was trained.

    Results that were not measured yet or belong to another setup are no errors. `absent` lists them, and the exhibits
    report them. Raises `DamagedFile` for a damaged or lost file of scores, because the report would otherwise leave a
    measured system out.
    """
    policy = StudyInputs(setup, runs, base_policy).last_policy
    rows, absent = _load_scores(setup, policy, base_policy)
    if any(RunPlan.read(folder).from_champion for folder in runs.values()):
        absent.pop(COLD_START, None)  # a retraining does not measure it with the changed pool
    systems = {name: _make_system(name, own) for name, own in rows.items()}
    workers = [system for system in systems.values() if system.kind == "worker"]
    every = len(workers) == len(setup.pool.names)  # the random worker and the oracle require all workers
    if workers and every:
        random = make_random_worker(workers)
        systems[random.name] = random
    return Evidence(
        run=describe_run(setup, runs, base_policy),
        systems=systems,
        conductor_rows=rows.get(CONDUCTOR, ()),
        best_worker=_find_best_worker(setup) if workers else "",
        curves={stage: read_curve(folder) for stage, folder in runs.items()},
        training_cost=_sum_training_cost(runs),
        worker_scores=_collect_worker_scores(rows) if every else {},
        experiments=_load_experiments(setup, runs, base_policy),
        training_experiments=tuple(
            name for name, entry in load_studies(setup.workspace.config).studies.items() if entry.trains_policies
        ),
        unreadable=absent,
    )


def find_trainings(workspace: Workspace, policy: str) -> tuple[dict[str, Path], Path | None]:
    """Return the trainings that made the policy with that key (stage → folder, the first one first), and the folder of
    the policy from which the first one started; None if the policy was not trained in this checkout."""
    runs: dict[str, Path] = {}
    folder, start = workspace.runs / policy, None
    while (folder / PLAN_FILE).is_file():
        plan = RunPlan.read(folder)
        runs = {plan.stage: folder} | runs
        start = plan.base_policy
        folder = start.parent
    return runs, start


def _sum_training_cost(runs: Mapping[str, Path]) -> TrainingCost | None:
    results = [RunResult.read(folder) for folder in runs.values()]
    finished = [result for result in results if result is not None]
    if not finished or len(finished) < len(results):
        return None
    return TrainingCost(
        sum(each.steps for each in finished),
        sum(each.rollouts for each in finished),
        sum(each.seconds for each in finished),
        sum(each.rollouts_usd for each in finished),
    )


def _load_scores(setup: Setup, policy: Path, base_policy: Path) -> tuple[dict[str, Rows], dict[str, str]]:
    rows: dict[str, Rows] = {}
    absent: dict[str, str] = {}
    for name, read in list_row_sources(setup, policy, base_policy).items():
        try:
            rows |= read()
        except DataError as error:
            if isinstance(error, DamagedFile) or is_lost(Path(error.file)):
                command = f"podium run {setup.recipe.name} --seed {setup.recipe.seed}"
                remedy = f"`{command}` makes it again from stored answers"
                raise DamagedFile(error.file, error.where, error.problem, remedy) from None
            absent[name] = str(error).replace(f"{setup.workspace.root}/", "")
    return rows, absent


def describe_run(setup: Setup, runs: Mapping[str, Path], base_policy: Path) -> RunInfo:
    """Return which run's evidence `gather_evidence` gathers."""
    recipe, policy = setup.recipe, StudyInputs(setup, runs, base_policy).last_policy
    synthetic = any(source.source == "embedded" for source in recipe.benchmarks.values())
    return RunInfo(
        recipe=recipe.name,
        seed=recipe.seed,
        policy=policy_key(policy) if policy.is_dir() else "",
        pool=setup.pool.name,
        repeats=recipe.evaluation.repeats,
        is_synthetic=synthetic,
        has_paper_setting=not synthetic and recipe.policy_name == "paper" and setup.pool.name == "paper",
    )


def _make_system(name: str, rows: Rows) -> System:
    if name == CONDUCTOR:
        return System.from_rows(name, "Conductor", "Conductor", rows)
    if name == COLD_START:
        return System.from_rows(name, "cold start", "cold start", rows)
    if name.startswith(WORKER_PREFIX):
        return System.from_rows(name, name, "worker", rows)
    entry = BASELINES[name]
    source, differs = (entry.source, entry.differences) if isinstance(entry, WorkflowBaseline) else ("", "")
    return System.from_rows(name, entry.title, "baseline", rows, source, differs)


def _load_experiments(setup: Setup, runs: Mapping[str, Path], base_policy: Path) -> dict[str, Experiment]:
    """Experiments that were run on these policies, by name; those of config/studies.yaml that train nothing, too."""
    lab, made = StudyInputs(setup, runs, base_policy), dict[str, Experiment]()
    own = {
        name: entry
        for name, entry in load_studies(setup.workspace.config).studies.items()
        if entry.recipe == setup.recipe.name and not entry.trains_policies
    }
    for name, entry in {**STUDIES, **own}.items():
        try:
            found = StudyStore(Study(name, entry), lab).read_findings()
        except DataError:  # not run, or run on another policy; the exhibit reports it
            continue
        made[name] = Experiment(entry.title, entry.about, found.summary, found.note)
        if found.claims.rows:
            about = "one system minus every opponent; p-values after Holm over the table"
            made[f"{name} claims"] = Experiment(f"{entry.title}: claims", about, found.claims)
    return made


def _find_best_worker(setup: Setup) -> str:
    trained = [
        row for row in read_graded_responses(setup.workspace.data / "responses") if row.worker in setup.pool.names
    ]
    return WORKER_PREFIX + find_best_worker(trained).worker if trained else ""


def _collect_worker_scores(rows: RowsBySystem) -> WorkerScores:
    """Scores of every worker on every repeat of every question."""
    grades = {name: grades_by_repeat(own) for name, own in rows.items() if name.startswith(WORKER_PREFIX)}
    repeats = max((len(own) for each in grades.values() for own in each.values()), default=1)
    unknown = [float("nan")] * repeats
    found: WorkerScores = {}
    for benchmark, question in dict.fromkeys(key for own in grades.values() for key in own):
        given = [own.get((benchmark, question), []) for own in grades.values()]
        found.setdefault(benchmark, {})[question] = [[*own, *unknown[len(own) :]] for own in given]
    return {name: found[name] for name in BENCHMARKS if name in found}
