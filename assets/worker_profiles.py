"""`worker_profiles`: what precaching measured of every worker."""

import dagster as dg

from assets import metadata
from assets.resources import Podium
from assets.worker_responses import worker_responses
from ops import versioning
from ops.precaching.plot import accuracy_against_cost
from ops.precaching.profiles import Profile, mean_score
from ops.stages.responses import materialize_profiles


@dg.asset(deps=[worker_responses], group_name="workers", kinds={"python", "dvc"})
def worker_profiles(podium: Podium) -> dg.MaterializeResult:
    """Accuracy ± standard error, tokens, USD, latency and failures of every worker; the best one and the oracle."""
    setup = podium.load()
    found = materialize_profiles(setup)
    best = next(one for one in found.workers if one.worker == found.best)
    ceiling = mean_score(found.oracle.values())
    png = accuracy_against_cost(found.workers, ceiling)
    setup.workspace.state.mkdir(exist_ok=True)
    (setup.workspace.state / "accuracy_against_cost.png").write_bytes(png)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(versioning.record(setup.workspace, podium.snapshot(), "worker_profiles")),
        metadata={
            "best_single_worker": f"{best.worker}: {metadata.percent(mean_score(best.by_benchmark.values()))} %",
            "oracle": f"{metadata.percent(ceiling)} %",
            "by_domain": _accuracies(found.workers, "by_domain"),
            "by_subject": _accuracies(found.workers, "by_subject"),
            "a_call": metadata.table(
                ("worker", "tokens in", "out", "USD", "s: 50 %", "90 %", "99 %", "refused", "truncated", "unreachable"),
                [_call(one) for one in found.workers],
            ),
            "accuracy_against_cost": metadata.picture("accuracy against cost", png),
            "responses_usd": round(sum(one.total_usd for one in found.workers), 6),
        },
    )


def _accuracies(workers: list[Profile], along: str) -> dg.MarkdownMetadataValue:
    """A row for each domain or subject, a column for each worker."""
    names = sorted({name for one in workers for name in getattr(one, along)})
    rows = [(name, *(metadata.percent(getattr(one, along).get(name)) for one in workers)) for name in names]
    return metadata.table(("accuracy in %", *(one.worker for one in workers)), rows)


def _call(one: Profile) -> tuple[str, ...]:
    seconds = (f"{value:.2f}" for value in one.latency_s)
    rates = (f"{rate:.1%}" for rate in one.rates.values())
    tokens = (f"{one.prompt_tokens:.0f}", f"{one.completion_tokens:.0f}")
    return (one.worker, *tokens, f"{one.cost_usd:.6f}", *seconds, *rates)
