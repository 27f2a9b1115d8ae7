"""The key of all that a stage depends on: what changes it, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ops.config import Snapshot
from ops.core.workspace import Workspace
from ops.stages import inputs
from ops.stages.inputs import inputs_key

CONFIG = Workspace.find().config


class Stage(NamedTuple):
    """A stage whose only file of an earlier one is `earlier`; its recipe reads `source`."""

    workspace: Workspace
    snapshot: Snapshot
    earlier: Path
    source: Path

    def key(self) -> str:
        return inputs_key(self.workspace, self.snapshot, [self.earlier])

    def asked(self, **recipe: object) -> Stage:
        changed = self.snapshot.recipe.model_copy(update=recipe)
        return self._replace(snapshot=self.snapshot.model_copy(update={"recipe": changed}))

    def worker(self, **worker: object) -> Stage:
        pool = self.snapshot.pool
        first, *others = pool.workers
        changed = pool.model_copy(update={"workers": (first.model_copy(update=worker), *others)})
        return self._replace(snapshot=self.snapshot.model_copy(update={"pool": changed}))

    def written(self, file: Path, text: str) -> Stage:
        file.write_text(text, encoding="utf-8")
        return self

    def renamed(self) -> Stage:
        return self._replace(earlier=self.earlier.rename(self.earlier.with_name("other.jsonl")))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    snapshot = Snapshot.take(CONFIG, "quickstart", None, "commit")
    source = snapshot.recipe.benchmarks["mmlu"].model_copy(update={"source": "file", "test_file": "rows.jsonl"})
    recipe = snapshot.recipe.model_copy(update={"benchmarks": snapshot.recipe.benchmarks | {"mmlu": source}})
    made = Stage(
        Workspace(tmp_path),
        snapshot.model_copy(update={"recipe": recipe}),
        tmp_path / "shortlist.jsonl",
        tmp_path / "rows.jsonl",
    )
    return made.written(made.earlier, "{}").written(made.source, "{}")


CHANGES: dict[str, Callable[[Stage], Stage]] = {
    "seed": lambda stage: stage.asked(seed=7),
    "a recipe's section": lambda stage: stage.asked(
        curation=stage.snapshot.recipe.curation.model_copy(update={"per_domain": 1})
    ),
    "a worker's model": lambda stage: stage.worker(model="local/guesser"),
    "a worker's price": lambda stage: stage.worker(price=stage.snapshot.pool.workers[1].price),
    "a change of the pool": lambda stage: stage._replace(
        snapshot=stage.snapshot.model_copy(update={"change": {"version": "1", "policy": "key"}})
    ),
    "another workspace": lambda stage: stage._replace(workspace=Workspace(stage.workspace.root / "other")),
    "an earlier stage's file": lambda stage: stage.written(stage.earlier, "{ }"),
    "its name": Stage.renamed,
    "a missing file": lambda stage: stage._replace(earlier=stage.earlier.with_name("none.jsonl")),
    "a source's file": lambda stage: stage.written(stage.source, "{ }"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_change_of_an_input_is_another_key(stage: Stage, change: Callable[[Stage], Stage]) -> None:
    before = stage.key()
    assert stage.key() == before
    assert change(stage).key() != before


@pytest.mark.parametrize("name", ["_code", "isolation", "installed"])
def test_code_isolation_and_libraries_are_inputs(stage: Stage, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stage.key()
    monkeypatch.setattr(inputs, name, lambda *_: "another")
    assert stage.key() != before


def test_neither_the_budget_nor_the_commit_is_an_input(stage: Stage) -> None:
    budget = stage.snapshot.recipe.budget.model_copy(update={"run_usd": 1234.0})
    later = stage.asked(budget=budget)
    assert later._replace(snapshot=later.snapshot.model_copy(update={"git_commit": "another"})).key() == stage.key()
