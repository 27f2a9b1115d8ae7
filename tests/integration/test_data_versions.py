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
from assets.last_result import UNCHANGED
from assets.resources import RunResource
from ops.core.workspace import Workspace
from ops.versioning.dvc import find_program
from pipelines.dagster_home import prepare_home
from tests.command import script
from tests.integration import checkouts
from tests.integration.checkouts import UNTRAINED, changed, configure, sizes
from tests.integration.test_versioning import git, versions_in_git

pytestmark = [
    pytest.mark.long,  # `make test` versions, restores and pushes single files (test_versioning.py)
    pytest.mark.timeout(600),
]

RECIPE: dict[str, Any] = UNTRAINED | {
    "name": "versioned",
    "seed": 1,
    "benchmarks": sizes(12, 2, ("math500", "mmlu")),
    "curation": {"per_domain": 3, "shortlist_factor": 1.5, "near_duplicate_jaccard": 1.0},
}
SEED = 3
"""Different from the recipe's: `dvc repro` must reproduce data made with an override."""


class History(NamedTuple):
    """A project with two revisions of its data, and the files and dvc.lock of each."""

    workspace: Workspace
    first: dict[str, bytes]
    second: dict[str, bytes]


def dvc(root: Path, *arguments: str) -> str:
    """Run DVC like a person; `podium` in dvc.yaml is that of these tests."""
    environment = {key: value for key, value in os.environ.items() if key != "PODIUM_ROOT"}
    environment["PATH"] = os.pathsep.join([str(script(root.with_name("bin")).parent), environment["PATH"]])
    command = [find_program(Workspace(root)), *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment, timeout=720)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def set_recipe(root: Path, *arguments: str) -> None:
    """Run `podium data settings` in a new process, as a person does before `dvc repro`."""
    command = [str(script(root.with_name("bin"))), "data", "settings", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PODIUM_ROOT"}
    subprocess.run(command, cwd=root, env=environment, check=True, timeout=240)


def materialize(workspace: Workspace, *, raw: bool) -> dg.AssetCheckEvaluation:
    """Materialize every data asset over all its partitions, in pipeline order; return the mix's first check.

    `raw`: also the benchmarks' problems, which no curation setting changes.
    """
    prepare_home(workspace)
    podium = RunResource(root=str(workspace.root), recipe="versioned", seed=SEED)
    every = partitions.tag_recipe_benchmarks(podium.load_setup().recipe)
    with dg.DagsterInstance.get() as instance:
        if raw:
            checkouts.materialize(podium, instance, "raw_problems", tags=every)
        checkouts.materialize(podium, instance, "shortlist", "worker_pool")
        checkouts.materialize(podium, instance, "worker_responses", tags=every)
        last = checkouts.materialize(podium, instance, "worker_profiles", "training_mix")
        return last.get_asset_check_evaluations()[0]


def state(workspace: Workspace) -> dict[str, bytes]:
    """Return the outputs of the data stages, and dvc.lock."""
    outs = ("settings.yaml", "raw", "shortlist.jsonl", "contamination.json", "responses", "profiles.json")
    outs += ("training_mix.jsonl", "data_card.md")
    files = [file for out in outs for file in (workspace.data / out, *(workspace.data / out).rglob("*"))]
    contents = {str(file.relative_to(workspace.root)): file.read_bytes() for file in files if file.is_file()}
    return contents | {"dvc.lock": (workspace.root / "dvc.lock").read_bytes()}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> History:
    workspace = make(tmp_path_factory.mktemp("versions") / "project")
    versions_in_git(workspace.root)
    states = []
    for tag, curation in (("first", RECIPE["curation"]), ("second", {**RECIPE["curation"], "per_domain": 2})):
        configure(workspace, {"recipes/versioned": RECIPE | {"curation": curation}})
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
    set_recipe(clone.root, "versioned", "--seed", str(SEED))
    dvc(clone.root, "repro")
    made, first = state(clone), dict(history.first)
    assert f"seed: {SEED}" in made["dvc.lock"].decode()
    # The file lists the stages in the order in which they were first made; their records are the same.
    assert yaml.safe_load(made.pop("dvc.lock")) == yaml.safe_load(first.pop("dvc.lock"))
    assert made == first
    assert yaml.safe_load(dvc(clone.root, "status", "--json")) == {}
    materialize(clone, raw=True)
    with dg.DagsterInstance.get() as instance:
        for name in ("shortlist", "worker_profiles", "training_mix"):
            assert checkouts.metadata(instance, name)[UNCHANGED] == "since a command made it"
    assert state(clone) == made | {"dvc.lock": state(clone)["dvc.lock"]}


@pytest.mark.parametrize(("edit", "stale"), [
    ({"curation": {"per_domain": 2}, "grpo": {"learning_rate": 1e-7}}, set()),
    ({"curation": {"per_domain": 1}}, {"settings", "shortlist", "training_mix"}),
])  # fmt: skip
def test_an_edit_makes_the_stages_stale_whose_data_it_changes(
    history: History, edit: dict[str, Any], stale: set[str]
) -> None:
    root = history.workspace.root
    configure(history.workspace, {"recipes/versioned": changed(RECIPE, **edit)})
    set_recipe(root)
    assert set(yaml.safe_load(dvc(root, "status", "--json"))) == stale
    git(root, "checkout", "--quiet", ".")
    dvc(root, "checkout", "--quiet", "--force")


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
