"""Which change makes what again: data, scores, baselines, studies, policies and runs, in one table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ops.config import Setup
from ops.evaluation.arms import Findings
from ops.evaluation.stored_scores import CONDUCTOR
from ops.evaluation.stored_studies import Study, StudyInputs, StudyStore
from ops.evaluation.study import STUDIES
from ops.precaching.client_setup import open_client
from ops.results.leaderboard import TableData
from ops.stages.data import are_precached, load_raw_once, make_mix_once, make_profiles_once, make_shortlist_once
from ops.stages.evaluation import are_baselines_scored, is_policy_scored
from ops.stages.responses import is_evaluation_answered, materialize_responses
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.run.training_run import run_key
from tests.integration.checkouts import configure
from tests.integration.conftest import forget
from tests.integration.test_graders_changed import BENCHMARKS, RECIPE, WORKERS, Project

TRAINED = {"policy": {"kind": "scratch"}, "cold_start": {"steps": 4, "batch": 4}, "grpo": {"micro_batch": 8}}
"""The sections of a recipe with a policy that is trained, on the same data."""
QUESTIONS = {"raw", "shortlist", "mix", "scores", "baselines", "workers", "studies"}
EVERYTHING = {*QUESTIONS, "responses", "profiles", "policy", "run"}


class Change(NamedTuple):
    """A change of the recipe, of a worker or of a file below `ops`."""

    recipe: dict[str, Any] = {}  # noqa: RUF012
    worker: dict[str, Any] = {}  # noqa: RUF012
    file: str = ""
    text: str = "\n\nADDED = 1\n"


CHANGES = {
    "nothing": (Change(), set()),
    "a docstring": (Change(file="workflow/execution.py", text="docstring"), set()),
    "a line of the ledger": (Change(file="spending/ledger.py"), set()),
    "a line of the trainer": (Change(file="training/grpo/trainer.py"), set()),
    "a line of the execution": (Change(file="workflow/execution.py"), {"scores", "baselines", "studies"}),
    "a line of the selection": (Change(file="curation/selection.py"), {"shortlist", "mix"}),
    "a grader": (
        Change(file="grading/graders/math.py"),
        {"raw", "responses", "scores", "baselines", "workers", "studies", "policy", "run"},
    ),
    "a price": (Change(worker={"price": {"input": 2.0, "output": 2.0}}), {"profiles"}),
    "a micro batch": (Change(recipe={"grpo": {"micro_batch": 16}}), set()),
    "steps between checkpoints": (Change(recipe={"grpo": {"micro_batch": 8, "checkpoint_every": 3}}), set()),
    "a time-out": (Change(worker={"timeout_s": 77.0}), set()),
    "a revision of a worker": (
        Change(worker={"revision": "2"}),
        EVERYTHING - {"raw", "shortlist", "mix"},
    ),
    "a question more": (
        Change(recipe={"benchmarks": {**RECIPE["benchmarks"], "mmlu": {"train": 8, "test": 5}}}),
        QUESTIONS,
    ),
    "the seed": (Change(recipe={"seed": 7}), EVERYTHING - {"workers"}),
}  # fmt: skip


def trained(setup: Setup) -> Setup:
    """Return the setup with a policy that is trained."""
    name = "trained"
    configure(setup.workspace, {f"recipes/{name}": _recipe(setup) | {"name": name}})
    return Setup.read(setup.workspace, name)


def _recipe(setup: Setup) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((setup.workspace.config / "recipes" / "small.yaml").read_text("utf-8"))
    own = {"policy": TRAINED["policy"], "cold_start": TRAINED["cold_start"]}
    return values | own | {"grpo": values.get("grpo", TRAINED["grpo"])}


def made_again(setup: Setup) -> set[str]:
    """Make the data stages, and return what is made now or would be made by a run."""
    made = {
        "raw": [load_raw_once(setup, name) for name in setup.recipe.benchmarks] != [None] * len(BENCHMARKS),
        "shortlist": make_shortlist_once(setup) is not None,
        "responses": not are_precached(setup),
    }
    materialize_responses(setup, open_client(setup, "precache"))
    made |= {"profiles": make_profiles_once(setup) is not None, "mix": make_mix_once(setup) is not None}
    policy = base_policy_folder(setup)
    made |= {
        "scores": not is_policy_scored(setup, policy, CONDUCTOR, BENCHMARKS),
        "baselines": not are_baselines_scored(setup, BENCHMARKS),
        "workers": not is_evaluation_answered(setup, BENCHMARKS),
        "studies": not study(setup).is_complete(),
    }
    return {name for name, again in made.items() if again}


def study(setup: Setup) -> StudyStore:
    name = "mechanism_isolation"
    return StudyStore(Study(name, STUDIES[name]), StudyInputs(setup, {}, base_policy_folder(setup)))


def keys(setup: Setup) -> dict[str, str]:
    own = trained(setup)
    base = base_policy_folder(own)
    return {"policy": base.name, "run": run_key(own, base)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("made_again"))
    made_again(project.setup)
    project.policy = make_base_policy(project.setup, open_client(project.setup, "training"))
    project.conductor()
    project.opponents()
    study(project.setup).store([], Findings(TableData(["a"], []), TableData(["a"], []), "said", b"picture"))
    assert made_again(project.setup) == set()
    yield project


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_makes_again_what_depends_on_it_and_nothing_else(
    name: str, finished: Project, source: Path, tmp_path: Path
) -> None:
    change, again = CHANGES[name]
    copied = Project.copied(finished, tmp_path / "copy")
    before = keys(copied.setup)
    if change.file:
        edit(source / change.file, change.text)
        forget()
    worker = WORKERS[0] | change.worker
    configure(copied.workspace, {"pools/few": {"name": "few", "workers": [worker, *WORKERS[1:]]}})
    configure(copied.workspace, {"recipes/small": RECIPE | change.recipe})
    setup = Setup.read(copied.workspace, "small")
    made = made_again(setup)
    now = keys(setup)
    assert made | {name for name in now if now[name] != before[name]} == again


def edit(file: Path, text: str) -> None:
    """Add a statement to a module, or rewrite its docstring."""
    known = file.read_text(encoding="utf-8")
    file.write_text(known.replace('"""', '"""Other words. ', 1) if text == "docstring" else known + text, "utf-8")
