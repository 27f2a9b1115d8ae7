"""`recursive_conductor` in Dagster, and what `podium depths` measures of its policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.adaptive_conductor import adaptive_run
from assets.conductor import run_folder
from assets.depths import Extent, measured
from assets.recursive_conductor import NO_SECTION, final_run, training_runs
from ops.conductor.policy import PolicyCard
from ops.config import RoundLimits
from ops.core.errors import DataError, PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.reading import questions, sample
from ops.stages.guards import guard_run
from ops.stages.problems import materialize_raw
from ops.training.run.plan import RunPlan, RunResult, read_curve
from pipelines.depths import write_table
from tests.integration.test_adaptive_asset import materialized, podium
from tests.unit.training.tiny import GRPO

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NAMES = ("math500", "aime25")


def test_the_stage_goes_on_from_the_last_policy_and_its_own_works_in_rounds(
    project: Workspace, tmp_path: Path
) -> None:
    sources = dict.fromkeys(("mmlu", "rlpr", "livecodebench", "gpqa_diamond", "bigcodebench"))
    sources |= {name: {"source": "embedded", "test": 4} for name in NAMES}  # type: ignore[dict-item]
    limits = {"rounds": 2, "calls_ratio": 3.0}
    chosen = podium(
        project, tmp_path, adaptive={"steps": 1, "largest": 3}, recursive={"steps": 1, "limits": limits},
        benchmarks=sources,
    )  # fmt: skip
    done = materialized(chosen, "conductor", "adaptive_conductor", "recursive_conductor")
    before, after = adaptive_run(chosen), final_run(chosen)
    assert list(training_runs(chosen).values()) == [run_folder(chosen), before, after]
    plan, result = RunPlan.read(after), RunResult.read(after)
    assert plan.base_policy == before / "policy" and plan.recursive is not None and plan.adaptive is None
    assert result is not None and result.steps == 1
    card = PolicyCard.read(after / "policy")
    assert (card.rounds, card.trained_steps) == (RoundLimits.model_validate(limits), GRPO["steps"] + 2)
    [event] = done.asset_materializations_for_node("recursive_conductor")
    assert event.metadata["steps"].value == 1
    [row] = read_curve(after)
    [loops] = [finding for finding in guard_run(chosen.load(), after) if finding.guard == "recursion_loops"]
    assert loops.saw.startswith(f"of the recursive rounds {row['round_2/loops']:.1%} repeat")
    evaluations = done.get_asset_check_evaluations()
    checks = {check.check_name: check for check in evaluations if check.asset_key.path == ["recursive_conductor"]}
    adaptive = [check.description for check in evaluations if check.asset_key.path == ["adaptive_conductor"]]
    findings = [str(finding) for finding in guard_run(chosen.load(), before)]
    assert adaptive and set(adaptive) <= set(findings)
    assert checks["recursion_loops"].description == str(loops)

    setup = chosen.load()
    for name in NAMES:
        materialize_raw(setup, name)
    asked = sample(questions(setup), 3, 1)
    assert [problem.benchmark for problem in asked] == ["math500"] * 3 + ["aime25"] * 3
    extent = {"depths": {"deepest": 1, "questions": 3}}
    [event] = materialized(chosen, "depths", settings=extent).asset_materializations_for_node("depths")
    assert event.metadata["calls_live"].value > 0 and "picture" in event.metadata
    none, once = [list(record.data.values()) for record in event.metadata["table"].records[2:]]  # type: ignore[attr-defined]
    assert none[:2] == ["after", "0"] and none[3] == none[5] == "" and float(none[8]) == 0.0
    assert float(none[6]) <= float(once[6]) <= 3 * float(none[6])  # calls
    stored = sorted((file, file.stat().st_mtime_ns) for file in project.scores.rglob("*.parquet"))
    [again] = materialized(chosen, "depths", settings=extent).asset_materializations_for_node("depths")
    assert again.metadata["table"] == event.metadata["table"]
    assert again.metadata["calls_live"].value == again.metadata["calls_cached"].value == 0  # nobody was asked
    assert stored == sorted((file, file.stat().st_mtime_ns) for file in project.scores.rglob("*.parquet"))
    assert measured(chosen, Extent(deepest=1, questions=3)).summary.rows[2][:2] == ["after", "0"]  # of a command
    with pytest.raises(DataError, match="depths has not been run"):
        measured(chosen, Extent(deepest=2, questions=3))


def test_without_the_section_the_stage_says_so_and_changes_nothing(project: Workspace, tmp_path: Path) -> None:
    chosen = podium(project, tmp_path)
    assert final_run(chosen) == run_folder(chosen)
    files = sorted(project.runs.rglob("*"))
    done = materialized(chosen, "recursive_conductor")
    [event] = done.asset_materializations_for_node("recursive_conductor")
    assert event.metadata["nothing_done"].value == NO_SECTION
    assert sorted(project.runs.rglob("*")) == files
    with pytest.raises(PodiumError, match="recipe 'small' has no recursive section"):
        write_table(project, "small", 1, 3, None)
