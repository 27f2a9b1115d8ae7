"""`training_mix`: the problems that the Conductor learns from, and the checks that gate them."""

import dagster as dg

from assets import metadata
from assets.resources import Podium
from assets.shortlist import shortlist
from assets.worker_profiles import worker_profiles
from ops import versioning
from ops.benchmarks.stage import evaluation_questions
from ops.benchmarks.store import read_problems
from ops.curation.stage import materialize_mix
from ops.quality import QualityReport, check_gold, check_problems


@dg.asset(deps=[shortlist, worker_profiles], group_name="training", kinds={"python", "dvc"})
def training_mix(podium: Podium) -> dg.MaterializeResult:
    """What GRPO trains on: as many problems for each domain, rather those on which the workers disagree."""
    workspace, recipe, _ = podium.load()
    mix = materialize_mix(workspace, recipe)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(versioning.commit(workspace, "training_mix")),
        metadata={
            "problems": len(mix.problems),
            "solved_alone_by": metadata.table(("workers that solve it", "problems"), list(mix.agreement.items())),
            "data_card": dg.MetadataValue.md(mix.card),
        },
    )


@dg.asset_check(asset=training_mix, blocking=True)
def fit_to_train_on(podium: Podium) -> dg.AssetCheckResult:
    """Great Expectations: schema, balance of the domains, and no evaluation question among them."""
    workspace, recipe, _ = podium.load()
    held_out = [one for asked in evaluation_questions(workspace, recipe).values() for one in asked]
    problems = read_problems(workspace.data / "training_mix.jsonl")
    return _result(check_problems(problems, per_domain=recipe.curation.per_domain, evaluation=held_out))


@dg.asset_check(asset=training_mix, blocking=True)
def gold_answers_score_one(podium: Podium) -> dg.AssetCheckResult:
    """Every gold answer, given as a worker would give it, is graded as right."""
    return _result(check_gold(read_problems(podium.load().workspace.data / "training_mix.jsonl")))


def _result(report: QualityReport) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=report.success,
        description="; ".join(report.failures) or f"{report.checked} problems checked",
        metadata={"checked": report.checked, "skipped": report.skipped, "failures": report.failures},
    )
