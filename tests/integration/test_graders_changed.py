"""After a change of grading code no table mixes two graders, and no worker is asked again."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.problem_files import read_evaluation_questions
from ops.config import Setup
from ops.core.errors import DataError, OverBudget, PodiumError
from ops.core.installation import resources_folder
from ops.core.problem import Grade, Problem
from ops.core.response_rows import load_responses
from ops.core.workspace import Workspace
from ops.evaluation.row_sorting import RowSorter
from ops.evaluation.stored_baselines import list_baseline_stores, read_training_responses
from ops.evaluation.stored_scores import CONDUCTOR, read_policy_scores, read_solo_responses, score_file
from ops.grading import GRADERS
from ops.planning.stored_results import compute_remaining
from ops.precaching.client_setup import open_client
from ops.results.table import concatenate_rows, iterate_records
from ops.stages.curation import materialize_mix
from ops.stages.evaluation import score_baselines, score_policy
from ops.stages.profiles import materialize_profiles
from ops.stages.responses import answer_evaluation_questions, materialize_responses
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from tests.integration.checkouts import UNTRAINED, configure, shortlisted, sizes
from tests.integration.conftest import forget
from tests.unit.core.test_digests import DAMAGES

BENCHMARKS = ("math500", "mmlu", "rlpr")
RECIPE: dict[str, Any] = {
    "name": "small", "pool": "few", "grading": UNTRAINED["grading"],
    "benchmarks": sizes(8, 4, BENCHMARKS),
    "curation": {"per_domain": 2, "near_duplicate_jaccard": 1.0},
    "prompting": {"style": "full", "shuffle_ordinals": False},
    "policy": {"kind": "static", "workflow": [{"worker": "solver"}]},
    "evaluation": {"baselines": ["oracle", "five_consensus"]},
}  # fmt: skip
WORKERS = [
    {"name": name, "model": f"local/{name}", "price": {"input": usd, "output": usd}, "latency_s": 0.1,
     "max_tokens": 200, "temperature": 0.7} for name, usd in (("solver", 1.0), ("librarian", 90.0))
]  # fmt: skip
"""The solver is the best worker, and the cheapest of equally good ones where every answer is wrong."""
Correct = dict[str, float]


class Project:
    """A workspace with a finished evaluation of a static policy, its baselines and its workers."""

    def __init__(self, root: Path) -> None:
        for folder in ("config", "data/few_shots", "data/knowledge"):
            shutil.copytree(resources_folder() / folder, root / folder)
        self.workspace = Workspace(root)
        configure(self.workspace, {"pools/few": {"name": "few", "workers": WORKERS}, "recipes/small": RECIPE})
        self.setup = Setup.read(self.workspace, "small")
        shortlisted(self.setup)
        self.calls = 0
        self.responses()
        materialize_mix(self.setup)
        self.policy = make_base_policy(self.setup, open_client(self.setup, "training"))

    @classmethod
    def copied(cls, finished: Project, root: Path) -> Project:
        """Return a copy of the project at `root`."""
        shutil.copytree(finished.workspace.root, root)
        project = object.__new__(cls)
        project.workspace, project.calls = Workspace(root), 0
        project.setup = Setup.read(project.workspace, "small")
        project.policy = base_policy_folder(project.setup)
        return project

    def asking(self, work: Callable[[Any], Any]) -> Any:
        client = open_client(self.setup, "evaluation")
        try:
            return work(client)
        finally:
            self.calls += client.counts.live

    def responses(self) -> None:
        self.asking(lambda client: materialize_responses(self.setup, client))

    def conductor(self) -> float:
        rows = self.asking(lambda client: score_policy(self.setup, self.policy, CONDUCTOR, client, BENCHMARKS))
        return mean(row.correct for row in iterate_records(concatenate_rows(rows.values())))

    def opponents(self) -> Correct:
        alone = self.asking(lambda client: answer_evaluation_questions(self.setup, client, BENCHMARKS))
        asked = self.asking(lambda client: score_baselines(self.setup, client, BENCHMARKS))
        return {
            "alone": mean(row.score for rows in alone.values() for row in rows),
            **{name: mean(row.correct for row in iterate_records(rows)) for name, rows in asked.items()},
        }


def mean(values: Any) -> float:
    listed = list(values)
    assert listed
    return sum(listed) / len(listed)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("graders"))
    assert 0 < project.conductor() < 1
    project.opponents()
    yield project


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished workspace."""
    return Project.copied(finished, tmp_path / "copy")


@pytest.fixture
def refuse(source: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A change of grading code that makes every answer wrong."""

    def wrong(_: Problem, answer: str) -> Grade:
        return Grade(0.0, answer, "everything is wrong")

    def change() -> None:
        for name in ("math", "choice", "text"):
            with (source / "grading" / "graders" / f"{name}.py").open("a", encoding="utf-8") as module:
                module.write("\n\nNOTHING_IS_RIGHT = True\n")
            monkeypatch.setitem(GRADERS.entries, name, replaced(name))
        monkeypatch.setattr("ops.grading._MEMO", {})
        forget()

    def replaced(name: str) -> Any:
        from dataclasses import replace

        return replace(GRADERS[name], grade_answer=wrong)

    return change


def test_a_finished_evaluation_and_its_baselines_are_judged_by_one_grader(
    project: Project, refuse: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    before = project.conductor(), project.opponents()
    assert before[0] > 0 and all(before[1].values())
    refuse()
    assert set(compute_remaining(project.setup, project_shortlist(project)).evaluation.values()) == {0.0}, (
        "the plan asks nothing"
    )
    with pytest.raises(DataError, match="grader math:"):
        read_policy_scores(project.setup, project.policy, CONDUCTOR, ["math500"])
    with pytest.raises(DataError, match="other inputs: grader"):
        read_solo_responses(project.setup, ["solver"])
    for read in (materialize_profiles, materialize_mix, lambda setup: read_training_responses([], setup)):
        with pytest.raises(DataError, match=r"another version of the grader\. .*podium data responses RECIPE"):
            read(project.setup)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        project.responses()
    [line] = [text for text in caplog.messages if "Another version of the grader" in text]
    assert re.search(r"responses/.*and 3 more: the answers are graded again", line)
    assert {row.score for row in load_responses(project.workspace.data / "responses")} == {0.0}
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert project.conductor() == 0.0
    assert len([text for text in caplog.messages if "Another version of the grader" in text]) == 1
    assert set(project.opponents().values()) == {0.0}, "no row of the earlier grader is left in the table"
    assert project.calls == 0, "no worker was asked again"
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        project.conductor()
        project.opponents()
    assert not caplog.messages, "the second time nothing is judged again"


def project_shortlist(project: Project) -> list[Problem]:
    from ops.benchmarks.problem_files import read_problems

    return read_problems(project.workspace.data / "shortlist.jsonl")


def test_an_interrupted_evaluation_is_judged_by_one_grader(
    project: Project, refuse: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(project.workspace.scores / CONDUCTOR)
    added = RowSorter.add

    def stop_after_one(self: Any, rows: Any) -> None:
        added(self, rows)
        raise OverBudget("stopped")

    configure(project.workspace, {"recipes/small": RECIPE | {"evaluation": {**RECIPE["evaluation"], "batch": 4}}})
    project.setup = Setup.read(project.workspace, "small")
    with monkeypatch.context() as stopping, pytest.raises(PodiumError, match="stopped"):
        stopping.setattr(RowSorter, "add", stop_after_one)
        project.conductor()
    assert not list((project.workspace.scores / CONDUCTOR).rglob("*.parquet*"))
    refuse()
    assert project.conductor() == 0.0, "half of the rows would be those of the earlier grader"
    assert project.calls == 0


def test_a_rewritten_docstring_or_comment_judges_nothing_again(
    project: Project, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = project.opponents()
    for file in (source / "grading").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r'\A"""', '"""Rewritten. ', text) + "\n# A comment.\n", encoding="utf-8")
    forget()
    with caplog.at_level(logging.WARNING):
        assert project.opponents() == before
        read_policy_scores(project.setup, project.policy, CONDUCTOR, BENCHMARKS)
        materialize_profiles(project.setup)
    assert not caplog.messages


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_score_file_is_refused_by_readers_and_made_again_by_the_next_run(
    damage: Callable[[Path], None], project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    file = score_file(project.workspace, CONDUCTOR, project.policy, "mmlu")
    [store] = list_baseline_stores(project.setup)
    alone = project.workspace.scores / "workers" / "solver" / "mmlu.parquet"
    precached = project.workspace.data / "responses" / "solver" / "mmlu.parquet"
    questions = read_evaluation_questions(project.workspace, project.setup.recipe)
    known = [path.read_bytes() for path in (file, store.file("mmlu"), alone, precached)]
    readers: list[tuple[Path, Callable[[], Any]]] = [
        (file, lambda: read_policy_scores(project.setup, project.policy, CONDUCTOR, ["mmlu"])),
        (store.file("mmlu"), lambda: store.rows(questions)),
        (alone, lambda: read_solo_responses(project.setup, ["solver"])),
        (precached, lambda: materialize_profiles(project.setup)),
    ]
    for path, read in readers:
        damage(path)
        if (path, damage) == (precached, Path.unlink):
            continue  # profiles are of the files that are there
        with pytest.raises(DataError) as found:
            read()
        assert str(found.value).startswith(f"{path}: ")
        assert "\n" not in str(found.value)
    with caplog.at_level(logging.WARNING):
        project.responses()
        project.conductor()
        project.opponents()
    if damage is not Path.unlink:
        for path, _ in readers:
            [line] = [text for text in caplog.messages if text.startswith(f"{path} ")]
            assert "It was renamed to mmlu.parquet.damaged-" in line
    assert [path.read_bytes() for path, _ in readers] == known
    assert project.calls == 0
