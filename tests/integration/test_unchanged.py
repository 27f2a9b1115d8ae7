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
from assets.resources import Podium
from assets.unchanged import AGAIN, UNCHANGED
from ops.config import PoolChange, load_pool
from ops.core.rows import ResponseRow, load_responses, response_file
from ops.core.workspace import Workspace
from ops.stages import inputs, responses
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
        podium = Podium(root=str(there.root), recipe="small", seed=seed)
        tagged = partitions.of_recipe(podium.load().recipe) | podium.launch_tags() | (tags or {})
        done = materialize(podium, self.instance, *STAGES, run_config=podium.run_config(), tags=tagged)
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


@pytest.mark.soak  # `make test` shows by the keys of inputs what does every step again (tests/unit/test_inputs.py)
@pytest.mark.parametrize("change", [
    pytest.param({"curation": {**RECIPE["curation"], "shortlist_factor": 1.5}}, id="recipe"),
    pytest.param({"seed": 5}, id="seed"),
    pytest.param({"tags": {AGAIN: "true"}}, id="tag"),
    pytest.param({"pool": pool("librarian", "guesser", "algebraist")}, id="worker"),
    pytest.param({"pool": pool("librarian", "guesser", usd=11.0)}, id="price"),
    pytest.param({"code": "another version"}, id="code"),
])  # fmt: skip
def test_a_change_of_an_input_does_everything_again(
    change: dict[str, Any], made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(made.workspace, {"pools/few": change.get("pool", POOL)})
    with monkeypatch.context() as patch:
        if "code" in change:
            patch.setattr(inputs, "_code", lambda: change["code"])
        given = {name: value for name, value in change.items() if name not in ("pool", "code")}
        assert made.run(**given) == EVERYTHING
    configure(made.workspace, {"pools/few": POOL})
    made.run()


@pytest.mark.soak
def test_a_pool_change_makes_the_problems_and_profiles_again(made: Made) -> None:
    podium = Podium(root=str(made.workspace.root), recipe="small")
    known = PoolChange(version="1", policy="none", before=load_pool(made.workspace.config, "few"))
    tags = podium.of(podium.snapshot().model_copy(update={"change": known})).launch_tags()
    names = ("raw_problems", "shortlist", "worker_profiles")
    done = materialize(podium, made.instance, *names, run_config=podium.run_config(), tags=tags)
    assert [name for name in names if all(map(_same, done.asset_materializations_for_node(name)))] == []
    made.run()


@pytest.mark.parametrize(
    ("place", "first", "damage"),
    [
        ("data/raw/mmlu-train.jsonl", "raw_problems", "cut"),
        ("data/shortlist.jsonl", "shortlist", "missing"),
        ("data/responses/guesser/mmlu.parquet", "worker_responses", "missing"),
        ("data/profiles.json", "worker_profiles", "flipped"),
        ("data/training_mix.jsonl", "training_mix", "cut"),
        ("data/settings.yaml", "raw_problems", "flipped"),
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
    assert made.run(benchmarks=benchmarks) == EVERYTHING
    assert made.run(benchmarks=benchmarks) == set()
    source.write_text(_rows(12, "edited"), encoding="utf-8")
    assert made.run(benchmarks=benchmarks) == EVERYTHING
    made.run()


@pytest.mark.soak
def test_the_files_of_another_workspace_are_not_its_own(made: Made, tmp_path: Path) -> None:
    other = Workspace(tmp_path / "copy")
    shutil.copytree(made.workspace.root, other.root)
    assert made.run(workspace=other) == EVERYTHING
    assert made.run() == EVERYTHING, "the last materialization is the other workspace's"


@pytest.mark.soak
def test_another_instance_of_dagster_knows_nothing(made: Made) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert Made(made.workspace, instance).run() == EVERYTHING


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
        assert "worker_responses" in made.run(tags={AGAIN: "true"})
    stored = load_responses(made.workspace.data / "responses")
    assert [row.status for row in stored].count("unreachable") == 1
    assert "worker_responses" in made.run()
    assert "unreachable" not in {row.status for row in load_responses(made.workspace.data / "responses")}
    assert made.run() == set()


@pytest.mark.soak
def test_a_part_of_the_benchmarks_is_not_the_whole(made: Made) -> None:
    podium = Podium(root=str(made.workspace.root), recipe="small")
    done = materialize(podium, made.instance, "raw_problems", partition="mmlu", run_config=podium.run_config())
    assert not any(map(_same, done.asset_materializations_for_node("raw_problems")))
    assert "raw_problems" in made.run()
