"""Each guard warns of a curve with its fault, and of no other curve."""

from __future__ import annotations

import io
import json
from typing import Any

import dagster as dg
import pytest
from rich.console import Console

from assets.checks import RECURSION_GUARD
from assets.resources import RunResource
from ops.conductor.policy import PolicyCard
from ops.config import Guards
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.guards import GUARDS, GuardEvidence, GuardFinding, check_guards, check_run_guards
from ops.training.run.training_run import CURVE_FILE, RunResult, write_run_plan
from ops.workers.client import CallCounts
from pipelines.definitions import make_definitions
from pipelines.run_output import print_summary

STEPS = 40
ALONE = {"math": {"solver": 0.5, "scholar": 0.3}, "mmlu": {"solver": 0.5, "scholar": 0.6}}
SOUND: dict[str, tuple[Any, Any]] = {
    "rollouts": (100, 100),
    "share/right": (0.36, 0.62),
    "share/wrong": (0.54, 0.33),
    "share/invalid": (0.1, 0.05),
    "share/unscorable": (0.0, 0.0),
    "invalid/no_assignment": (0.08, 0.03),
    "invalid/unequal_lengths": (0.02, 0.02),
    "zero_variance_groups": (0.1, 0.5),
    "diversity": (5.0, 3.0),
    "completion_tokens": (20.0, 19.0),
    "use": (
        {"math": {"solver": 40, "scholar": 20}, "mmlu": {"solver": 20, "scholar": 20}},
        {"math": {"solver": 40, "scholar": 10}, "mmlu": {"solver": 20, "scholar": 30}},
    ),
    "top_patterns": ({"0": 20, "1": 20, "0 1<0": 10}, {"0": 40, "0 1<0": 30}),
}
"""Values of a sound curve, at its beginning and at its end."""


def curve(**at_the_end: Any) -> list[dict[str, Any]]:
    """Make a sound curve with other values in its second half."""
    rows = []
    for step in range(1, STEPS + 1):
        late = step > STEPS // 2
        row = {name: values[late] for name, values in SOUND.items()}
        rows.append({"step": step, **row, **(at_the_end if late else {})})
    return rows


def findings(rows: list[dict[str, Any]], **thresholds: Any) -> dict[str, GuardFinding]:
    return {finding.guard: finding for finding in check_guards(GuardEvidence(rows, Guards(**thresholds), ALONE))}


def warned(rows: list[dict[str, Any]], **thresholds: Any) -> list[str]:
    return [name for name, finding in findings(rows, **thresholds).items() if not finding.passed]


FAULTS: dict[str, tuple[dict[str, Any], str, dict[str, float]]] = {
    "format_failures": (
        {"share/invalid": 0.4, "share/right": 0.4, "share/wrong": 0.2, "invalid/unequal_lengths": 0.37},
        "40.0% of the completions are no workflow, most often unequal_lengths; 10.0% at the beginning",
        {"max_invalid": 0.4},
    ),
    "one_worker": (
        {"use": {"math": {"solver": 90, "scholar": 10}, "mmlu": {"solver": 80, "scholar": 20}}},
        "solver is given at least 80.0% of the steps in every domain (math, mmlu)",
        {"max_worker_share": 0.8},
    ),
    "worker_mismatch": (
        {"use": {"math": {"solver": 10, "scholar": 40}, "mmlu": {"solver": 20, "scholar": 30}}},
        "math: scholar is used most, alone right on 30.0%; solver on 50.0%",
        {"max_worker_gap": 0.21},
    ),
    "one_pattern": (
        {"top_patterns": {"0": 90, "1": 5}},
        "94.7% of the workflows have the pattern '0' (worker<steps that it sees)",
        {"max_pattern_share": 0.95},
    ),
    "routing_entropy": (
        {"diversity": 1.0}, "the patterns' entropy went from 5.00 to 1.00 bits", {"min_entropy_kept": 0.2}
    ),
    "right_if_valid_rises": (
        {"share/right": 0.38, "share/wrong": 0.57},
        "of the valid workflows 40.0% were right at the beginning and 40.0% at the end",
        {"min_gain": -0.01},
    ),
    "unscorable": (
        {"share/unscorable": 0.2}, "10.0% of all rollouts have no reward, 20.0% in step 21", {"max_unscorable": 0.11}
    ),
    "recursion_loops": (
        {"round_2/rollouts": 50, "round_2/loops": 0.2, "round_2/to_wrong": 0.12, "round_2/to_right": 0.02},
        "of the recursive rounds 20.0% repeat the workflow before, 12.0% make a right answer wrong and 2.0% a wrong",
        {"max_loops": 0.31},
    ),
    "zero_variance": (
        {"zero_variance_groups": 0.9}, "in 90.0% of the groups all rewards are alike; 10.0% at the",
        {"max_zero_variance": 0.91},
    ),
}  # fmt: skip
"""Guard → a fault, how its finding begins, and a threshold that permits the fault."""


def test_a_sound_curve_passes_every_guard() -> None:
    assert warned(curve()) == []


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_warns_of_its_fault_alone(guard: str) -> None:
    fault, saw, _ = FAULTS[guard]
    rows = curve(**fault)
    assert warned(rows) == [guard]
    finding = findings(rows)[guard]
    assert finding.finding.startswith(saw)
    assert GUARDS[guard].remedy in str(finding) and finding.threshold in str(finding)


@pytest.mark.parametrize("guard", GUARDS)
def test_the_recipe_sets_the_permitted_share(guard: str) -> None:
    fault, _, threshold = FAULTS[guard]
    assert warned(curve(**fault), **threshold) == []


def test_a_fine_tuning_that_restores_the_format_is_not_judged_by_a_rise_in_accuracy() -> None:
    fault, saw, _ = FAULTS["right_if_valid_rises"]
    found = check_guards(GuardEvidence(curve(**fault), Guards(), ALONE, from_champion=True))
    assert [finding.guard for finding in found if not finding.passed] == []
    [said] = [str(finding) for finding in found if finding.guard == "right_if_valid_rises"]
    assert said.startswith(saw) and "none for a fine-tuning" in said


def test_rounds_that_win_more_than_they_lose_are_no_loops() -> None:
    gains = {"round_2/rollouts": 50, "round_2/loops": 0.2, "round_2/to_wrong": 0.3, "round_2/to_right": 0.4}
    assert warned(curve(**gains)) == []
    assert findings(curve())["recursion_loops"].finding == "there are no recursive rounds"


def test_the_window_sets_the_number_of_compared_steps() -> None:
    rows = curve()
    rows[-1]["share/invalid"] = 0.5
    assert warned(rows) == []
    assert warned(rows, window=2) == ["format_failures"]


def test_a_missing_value_in_a_curve_is_not_a_fault() -> None:
    """The step is one in which no worker was reached."""
    lost = {"share/right": 0.0, "share/wrong": 0.0, "share/invalid": 0.0, "share/unscorable": 1.0}
    [row] = curve()[:1]
    row |= lost | {"zero_variance_groups": float("nan"), "use": {}, "top_patterns": {}, "diversity": 0.0}
    assert warned([row]) == ["unscorable"]
    assert findings([row])["worker_mismatch"].finding == "the workers were not measured alone"


def test_a_materialized_conductor_comes_with_its_warnings(project: Workspace) -> None:
    (project.data / "training_mix.jsonl").write_text("", encoding="utf-8")
    podium = RunResource(root=str(project.root), recipe="quickstart")
    setup = podium.load_setup()
    base = base_policy_folder(setup)
    base.mkdir(parents=True)
    card = PolicyCard(
        recipe="small", pool=setup.pool, offered=setup.pool.names, prompting=setup.recipe.prompting,
        max_completion_tokens=8,
    )  # fmt: skip
    card.write(base)
    folder = write_run_plan(setup, base)
    with pytest.raises(DataError, match="has no training step"):
        check_run_guards(setup, folder)
    rows = [row | {"reward": 0.5, "patterns": 9, "sample": ""} for row in curve(**FAULTS["unscorable"][0])]
    write_text(folder / CURVE_FILE, "".join(json.dumps(row) + "\n" for row in rows))
    result = RunResult(
        steps=STEPS, reward_before=0.5, reward_after=0.5, window=5, rollouts=4000, live_calls=0, cached_calls=0,
        rollouts_usd=0.0, seconds=1.0,
    )  # fmt: skip
    result.write(folder)
    card.write(folder / "policy")
    job = make_definitions(podium).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(
            instance=instance, asset_selection=[dg.AssetKey("conductor")], run_config=podium.make_run_config()
        )
    assert done.success
    evaluations = {each.check_name: each for each in done.get_asset_check_evaluations()}
    assert list(evaluations) == [name for name in GUARDS if name != RECURSION_GUARD]
    assert {each.severity for each in evaluations.values()} == {dg.AssetCheckSeverity.WARN}
    assert [name for name, each in evaluations.items() if not each.passed] == ["unscorable"]
    assert str(evaluations["unscorable"].description).startswith("10.0% of all rollouts have no reward")
    out = io.StringIO()
    print_summary(Console(file=out, width=200), podium, CallCounts(), 60.0, "train")
    assert "Guard       unscorable: 10.0% of all rollouts" in out.getvalue()
    assert out.getvalue().count("Guard ") == 1
