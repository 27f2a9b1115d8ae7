"""What is unchanged is not done again, and any change of an input or an output does the step again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest

from assets import partitions
from assets.last_result import REBUILD_TAG, UNCHANGED
from assets.resources import RunResource
from ops.config import PoolChange, load_pool
from ops.core.response_rows import ResponseRow, load_responses, response_file
from ops.core.workspace import Workspace
from ops.stages import responses
from ops.stages.checks import check_once
from ops.stages.data import are_precached, load_raw_once, make_mix_once, make_profiles_once, make_shortlist_once
from tests.integration.checkouts import configure, materialize, metadata
from tests.integration.test_precaching import RECIPE, pool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

STAGES = ("raw_problems", "shortlist", "worker_responses", "worker_profiles", "training_mix")
CHECKS = 8


def _rows(count: int, word: str) -> str:
    """Programming problems as the rows of a file."""
    tests = [{"kind": "call", "input": "f(2)", "output": "4"}]
    answer = "def f(x):\n    return x * x"
    rows = (
        {"id": f"{word}{n}", "question": f"Square it, {word} {n}.", "answer": answer, "grader": "code", "tests": tests}
        for n in range(count)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


class Made(NamedTuple):
    """A project whose data stages were made, in an instance of Dagster."""

    workspace: Workspace
    instance: dg.DagsterInstance

    def run(
        self, *, tags: dict[str, str] | None = None, workspace: Workspace | None = None, seed: int | None = None,
        **recipe: Any,
    ) -> set[str]:  # fmt: skip
        """Materialize the data stages; return those that were done, and "checks" if a check was."""
        there = workspace or self.workspace
        configure(there, {"recipes/small": RECIPE | recipe})
        podium = RunResource(root=str(there.root), recipe="small", seed=seed)
        tagged = partitions.tag_recipe_benchmarks(podium.load_setup().recipe) | podium.make_launch_tags() | (tags or {})
        done = materialize(podium, self.instance, *STAGES, run_config=podium.make_run_config(), tags=tagged)
        worked = {name for name in STAGES if not all(map(_same, done.asset_materializations_for_node(name)))}
        evaluated = done.get_asset_check_evaluations()
        assert all(each.passed for each in evaluated) and len(evaluated) == CHECKS
        return worked | ({"checks"} if not all(map(_same, evaluated)) else set())


def _same(event: dg.AssetMaterialization | dg.AssetCheckEvaluation) -> bool:
    return UNCHANGED in event.metadata or "not_in_recipe" in event.metadata


EVERYTHING = {*STAGES, "checks"}
POOL = pool("librarian", "guesser")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Iterator[Made]:
    """The data stages, done once; every test begins and ends with all of them done."""
    workspace = make(tmp_path_factory.mktemp("unchanged") / "project")
    shutil.rmtree(workspace.root / ".dvc")  # what DVC holds is tested below
    configure(workspace, {"pools/few": POOL})
    with dg.DagsterInstance.ephemeral() as instance:
        project = Made(workspace, instance)
        assert project.run() == EVERYTHING
        yield project


@pytest.mark.long
def test_nothing_is_done_twice_and_the_metadata_stays(made: Made) -> None:
    before = {name: metadata(made.instance, name) for name in STAGES}
    assert made.run() == set()
    for name in STAGES:
        now = metadata(made.instance, name)
        assert now.pop(UNCHANGED).startswith("since run ")
        before[name].pop(UNCHANGED, None)
        assert now.keys() == before[name].keys()
    assert "problems" in before["shortlist"] and "data_card" in before["training_mix"]


def test_a_budget_is_no_input(made: Made) -> None:
    assert made.run(budget={"run_usd": 77.0}) == set()


MIX, PROFILES, ANSWERS = "training_mix", "worker_profiles", "worker_responses"


@pytest.mark.soak
@pytest.mark.parametrize(("change", "made_again"), [
    pytest.param({"curation": {**RECIPE["curation"], "shortlist_factor": 1.5}}, {"shortlist", ANSWERS, PROFILES, MIX},
                 id="setting"),
    pytest.param({"seed": 5}, {"raw_problems", "shortlist", ANSWERS, PROFILES, MIX}, id="seed"),
    pytest.param({"tags": {REBUILD_TAG: "true"}}, {*STAGES}, id="tag"),
    pytest.param({"pool": pool("librarian", "guesser", "algebraist")}, {ANSWERS, PROFILES, MIX}, id="worker"),
    pytest.param({"pool": pool("librarian", "guesser", usd=11.0)}, {PROFILES}, id="price"),
])  # fmt: skip
def test_a_change_of_an_input_makes_what_depends_on_it_again(
    change: dict[str, Any], made_again: set[str], made: Made
) -> None:
    configure(made.workspace, {"pools/few": change.get("pool", POOL)})
    worked = made.run(**{name: value for name, value in change.items() if name != "pool"})
    configure(made.workspace, {"pools/few": POOL})
    made.run()
    assert worked - {"checks"} == made_again


@pytest.mark.soak
def test_a_pool_change_makes_nothing_again_that_it_does_not_concern(made: Made) -> None:
    podium = RunResource(root=str(made.workspace.root), recipe="small")
    known = PoolChange(version="1", policy="none", before=load_pool(made.workspace.config, "few"))
    tags = podium.bind_snapshot(podium.get_snapshot().model_copy(update={"change": known})).make_launch_tags()
    names = ("raw_problems", "shortlist", "worker_profiles")
    done = materialize(podium, made.instance, *names, run_config=podium.make_run_config(), tags=tags)
    assert [name for name in names if all(map(_same, done.asset_materializations_for_node(name)))] == [*names]
    made.run()


def test_the_commands_find_unchanged_what_dagster_made_and_dagster_what_they_made(made: Made) -> None:
    podium = RunResource(root=str(made.workspace.root), recipe="small")
    setup = podium.load_setup()
    assert [load_raw_once(setup, name) for name in setup.recipe.benchmarks] == [None] * len(setup.recipe.benchmarks)
    assert (make_shortlist_once(setup), are_precached(setup), make_profiles_once(setup), make_mix_once(setup)) == (
        None, True, None, None
    )  # fmt: skip
    assert check_once(setup, "fit_to_train_on")[1] is False
    (made.workspace.data / "training_mix.jsonl").unlink()
    assert make_mix_once(setup) is not None
    assert made.run() == set()


@pytest.mark.parametrize(
    ("place", "first", "damage"),
    [
        ("data/raw/mmlu-train.jsonl", "raw_problems", "cut"),
        ("data/shortlist.jsonl", "shortlist", "missing"),
        ("data/responses/guesser/mmlu.parquet", "worker_responses", "missing"),
        ("data/profiles.json", "worker_profiles", "flipped"),
        ("data/training_mix.jsonl", "training_mix", "cut"),
    ],
)
def test_an_output_that_is_not_as_it_was_written_is_made_again(place: str, first: str, damage: str, made: Made) -> None:
    file = made.workspace.root / place
    whole, status = file.read_bytes(), file.stat()
    match damage:
        case "cut":
            file.write_bytes(whole[: len(whole) // 2])
        case "missing":
            file.unlink()
        case "flipped":
            file.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    if file.exists():
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert first in made.run()
    assert file.read_bytes() == whole


def test_a_damaged_file_of_responses_is_set_aside_and_made_again(made: Made) -> None:
    file = response_file(made.workspace.data / "responses", "guesser", "mmlu")
    whole = file.read_bytes()
    file.write_bytes(whole[:-50])
    assert "worker_responses" in made.run()
    assert file.read_bytes() == whole
    [aside] = (each for each in file.parent.glob("mmlu.parquet.damaged-*") if each.suffix != ".sha256")
    assert aside.read_bytes() == whole[:-50]
    assert made.run() == set(), "what was set aside is no output"


@pytest.mark.soak
def test_a_source_file_is_an_input(made: Made) -> None:
    source = made.workspace.root / "v1.jsonl"
    source.write_text(_rows(12, "old"), encoding="utf-8")
    (made.workspace.root / "v6.jsonl").write_text(_rows(2, "new"), encoding="utf-8")
    files = {"source": "file", "train_file": "v1.jsonl", "test_file": "v6.jsonl"}
    benchmarks = {**RECIPE["benchmarks"], "livecodebench": files}
    assert "raw_problems" in made.run(benchmarks=benchmarks)
    assert made.run(benchmarks=benchmarks) == set()
    source.write_text(_rows(12, "edited"), encoding="utf-8")
    assert "raw_problems" in made.run(benchmarks=benchmarks)
    made.run()


@pytest.mark.soak
def test_a_copied_workspace_and_another_instance_of_dagster_find_what_is_made(made: Made, tmp_path: Path) -> None:
    other = Workspace(tmp_path / "copy")
    shutil.copytree(made.workspace.root, other.root)
    assert made.run(workspace=other) == set()
    with dg.DagsterInstance.ephemeral() as instance:
        assert Made(made.workspace, instance).run() == set()


@pytest.mark.soak
def test_what_a_run_left_incomplete_is_completed_by_the_next(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*given: Any, **more: Any) -> Any:
        rows = real(*given, **more)
        cell = next(iter(rows))
        first = rows[cell][0]
        rows[cell][0] = ResponseRow(first.worker, first.benchmark, first.problem_id, first.sample, "unreachable")
        return rows

    real = responses._ask
    with monkeypatch.context() as patch:
        patch.setattr(responses, "_ask", unreachable)
        assert "worker_responses" in made.run(tags={REBUILD_TAG: "true"})
    stored = load_responses(made.workspace.data / "responses")
    assert [row.status for row in stored].count("unreachable") == 1
    assert "worker_responses" in made.run()
    assert "unreachable" not in {row.status for row in load_responses(made.workspace.data / "responses")}
    assert made.run() == set()


@pytest.mark.soak
def test_each_benchmark_is_made_by_itself(made: Made) -> None:
    podium = RunResource(root=str(made.workspace.root), recipe="small")
    (made.workspace.data / "raw" / "mmlu-train.jsonl").unlink()
    done = materialize(podium, made.instance, "raw_problems", partition="mmlu", run_config=podium.make_run_config())
    assert not any(map(_same, done.asset_materializations_for_node("raw_problems")))
    assert made.run() == set()
