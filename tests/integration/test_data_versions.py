"""The data of a small recipe, made by Dagster, by `dvc repro` and again from an older revision: always the same bytes.

One project serves all tests of this file.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest
import yaml

from assets import partitions
from assets.resources import Podium
from ops.core.workspace import Workspace
from ops.versioning.dvc import program
from pipelines.definitions import definitions
from pipelines.home import prepare
from tests.command import script

pytestmark = [
    pytest.mark.long,  # `make test` versions, restores and pushes single files (test_versioning.py)
    pytest.mark.timeout(600),
]

TRAINED = ("math500", "mmlu")
RECIPE: dict[str, Any] = {
    "name": "versioned",
    "seed": 1,
    "pool": "quickstart",
    "grading": {"isolation": "resource_limits"},  # programs of our own: see the quickstart
    "benchmarks": {name: {"train": 12, "test": 2} for name in TRAINED},
    "curation": {"per_domain": 3, "shortlist_factor": 1.5, "near_duplicate_jaccard": 1.0},
    "policy": {"kind": "scratch", "max_tokens": 1536},
    "grpo": {"max_completion_tokens": 64, "micro_batch": 4},
    "cold_start": {},
}
SEED = 3
"""Different from the recipe's: `dvc repro` must reproduce data made with an override."""


class History(NamedTuple):
    """A project with two revisions of its data, and the files and dvc.lock of each."""

    workspace: Workspace
    first: dict[str, bytes]
    second: dict[str, bytes]


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=720).stdout


def dvc(root: Path, *arguments: str) -> str:
    """Run DVC like a person; `podium` in dvc.yaml is that of these tests."""
    environment = {key: value for key, value in os.environ.items() if key != "PODIUM_ROOT"}
    environment["PATH"] = os.pathsep.join([str(script(root.with_name("bin")).parent), environment["PATH"]])
    command = [program(Workspace(root)), *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment, timeout=720)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def materialize(workspace: Workspace, *, raw: bool) -> dg.AssetCheckEvaluation:
    """Materialize every data asset over all its partitions, in pipeline order; return the mix's first check.

    `raw`: also the benchmarks' problems, which no curation setting changes.
    """
    prepare(workspace)
    podium = Podium(root=str(workspace.root), recipe="versioned", seed=SEED)
    job = definitions(podium).resolve_implicit_global_asset_job_def()
    every = partitions.of_recipe(podium.load().recipe)
    with dg.DagsterInstance.get() as instance:

        def run(*names: str, **tags: str) -> dg.ExecuteInProcessResult:
            keys = [dg.AssetKey(name) for name in names]
            return job.execute_in_process(instance=instance, asset_selection=keys, tags=tags)

        if raw:
            run("raw_problems", **every)
        run("shortlist", "worker_pool")
        run("worker_responses", **every)
        return run("worker_profiles", "training_mix").get_asset_check_evaluations()[0]


def state(workspace: Workspace) -> dict[str, bytes]:
    """Return the outputs of the data stages, and dvc.lock."""
    outs = ("settings.yaml", "raw", "shortlist.jsonl", "contamination.json", "responses", "profiles.json")
    outs += ("training_mix.jsonl", "data_card.md")
    files = [file for out in outs for file in (workspace.data / out, *(workspace.data / out).rglob("*"))]
    contents = {str(file.relative_to(workspace.root)): file.read_bytes() for file in files if file.is_file()}
    return contents | {"dvc.lock": (workspace.root / "dvc.lock").read_bytes()}


def write_recipe(workspace: Workspace, **changes: Any) -> None:
    file = workspace.config / "recipes" / "versioned.yaml"
    file.write_text(yaml.safe_dump({**RECIPE, **changes}), encoding="utf-8")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> History:
    workspace = make(tmp_path_factory.mktemp("versions") / "project")
    states = []
    for tag, curation in (("first", RECIPE["curation"]), ("second", {**RECIPE["curation"], "per_domain": 2})):
        write_recipe(workspace, curation=curation)
        assert materialize(workspace, raw=tag == "first").passed
        git(workspace.root, "add", "--all")
        git(workspace.root, "commit", "--quiet", "--message", tag)
        git(workspace.root, "tag", tag)
        states.append(state(workspace))
    return History(workspace, *states)


@pytest.mark.soak  # CI reproduces the bytes by Dagster, below
def test_dvc_alone_makes_the_same_bytes_and_the_same_lock(history: History, tmp_path: Path) -> None:
    clone = Workspace(tmp_path / "clone")
    git(history.workspace.root, "clone", "--quiet", "--branch", "first", str(history.workspace.root), str(clone.root))
    (clone.root / "dvc.lock").unlink()
    dvc(clone.root, "repro")
    made, first = state(clone), dict(history.first)
    assert f"--seed {SEED}" in made["dvc.lock"].decode()
    # The file lists the stages in the order in which they were first made; their records are the same.
    assert yaml.safe_load(made.pop("dvc.lock")) == yaml.safe_load(first.pop("dvc.lock"))
    assert made == first
    assert list(yaml.safe_load(dvc(clone.root, "status", "--json"))) == ["settings"]  # which is never up to date


def test_an_edit_that_changes_no_data_leaves_every_stage_but_the_settings_current(history: History) -> None:
    write_recipe(history.workspace, curation={**RECIPE["curation"], "per_domain": 2}, grpo={"learning_rate": 1e-7})
    stale = yaml.safe_load(dvc(history.workspace.root, "status", "--json"))
    assert list(stale) == ["settings"]
    git(history.workspace.root, "checkout", "--quiet", ".")


def test_the_difference_lists_the_changed_settings(history: History) -> None:
    said = dvc(history.workspace.root, "diff", "first", "second")
    modified = said.partition("Modified:")[2].partition("\n\n")[0].split()
    assert "data/training_mix.jsonl" in modified
    assert "data/settings.yaml" in modified
    assert not [name for name in modified if name.startswith("data/raw")]
    assert "curation.per_domain" in dvc(history.workspace.root, "params", "diff", "first", "second")


def test_an_older_revision_is_restored_and_made_again_byte_for_byte(history: History) -> None:
    workspace = history.workspace
    assert history.first["data/training_mix.jsonl"] != history.second["data/training_mix.jsonl"]
    git(workspace.root, "checkout", "--quiet", "first")
    dvc(workspace.root, "checkout", "--quiet")
    assert state(workspace) == history.first
    (workspace.data / "training_mix.jsonl").unlink()
    (workspace.data / "shortlist.jsonl").unlink()
    assert materialize(workspace, raw=False).passed
    assert state(workspace) == history.first
