"""The tags of a model version that state its origin, and the pool and data on which it was tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ops.core.errors import PodiumError
from ops.spending.bookings import format_usd


class ReleaseRefusedError(PodiumError):
    """A version must not be released, because its origin, its scores or its files differ from what it states. An
    override does not change that."""


@dataclass(frozen=True)
class Lineage:
    """The origin of a model version. Each field becomes a tag of the version."""

    git_commit: str
    """The commit of the code that made the version."""
    dvc_revision: str
    """The revision of the data that the policy was trained on."""
    policy: str
    """The key of the policy, which the scores must name."""
    pool_answers_key: str
    """The key of all settings of the pool that can change an answer."""
    pool_prices_key: str
    """The key of the pool's prices."""
    recipe: str
    ledger_run: str = ""
    """The run under which the ledger has booked everything that was paid for the version (`podium ledger --run`)."""
    paid_usd: float = 0.0
    """USD that the ledger had booked for this run when the version was registered: all stages together."""
    training_paid_usd: float = 0.0
    """The part of it that was paid for the training, which is cold start and GRPO."""
    rollouts_usd: float = 0.0
    """USD that the workers' responses to the rollouts of its training would have cost without the cache."""
    evaluation: str = ""
    """The key of all that the scores depend on: policy, pool, questions and settings (`Comparison.scores_key`)."""
    questions: str = ""
    """The key of each benchmark's questions: `math500=1f2e… mmlu=…`."""
    graders: str = ""
    """The graders of each benchmark with their versions: `math500=math:1f2e… mmlu=choice:…`."""

    def as_tags(self) -> dict[str, str]:
        """Return the fields that have a value, as tags."""
        return {name: str(value) for name, value in vars(self).items() if str(value)}


COST_TAGS = ("paid_usd", "training_paid_usd", "rollouts_usd")
"""The tags with what a version cost, in USD. Their names and values are the same on every page."""
FINE_TUNED_FROM = "fine_tuned_from_version"
"""Tag of a version that a retraining made: the number of the version whose policy it continues."""
OPTIONAL_TAGS = frozenset({"evaluation", "questions", "graders", "ledger_run", *COST_TAGS})
"""Tags that versions of other checkouts may lack."""
REQUIRED_TAGS = tuple(field.name for field in fields(Lineage) if field.name not in OPTIONAL_TAGS)
"""Tags that every version must have before it is released."""


def describe_cost(tags: Mapping[str, str]) -> str:
    """Return what a version cost, in one sentence; empty for a version of an earlier checkout, which has other tags."""
    if not tags.get("paid_usd"):
        return ""
    paid, training, rollouts = (float(tags[name]) for name in COST_TAGS)
    return (
        f"{format_usd(paid)} paid for all stages, of which {format_usd(training)} for the training. Without the cache, "
        f"the rollouts of the training would have cost {format_usd(rollouts)}."
    )


def check_lineage(version: str, tags: Mapping[str, str]) -> None:
    """Raise `ReleaseRefusedError` unless the version has all tags of `REQUIRED_TAGS`."""
    if missing := [name for name in REQUIRED_TAGS if not tags.get(name, "").strip()]:
        remedy = "Materialize registered_model again: it registers the policy with its lineage"
        raise ReleaseRefusedError(
            f"version {version}: lineage: {', '.join(missing)} is missing among its tags. {remedy}"
        )


def check_tags(version: str, tags: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Raise `ReleaseRefusedError` if a tag of the version differs from the value in `expected`, by which the version is
    compared."""
    for name, value in expected.items():
        if (claimed := tags.get(name)) and claimed != value:
            remedy = "Materialize benchmark_scores, leaderboard and registered_model so that they agree"
            raise ReleaseRefusedError(
                f"version {version}: {name}: the version says {claimed}, and the current evaluation is of {value}. "
                f"{remedy}"
            )


def read_question_keys(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the key of the questions of each benchmark that the version was scored on; empty if the tag is missing."""
    return _parse_keys(tags.get("questions", ""))


def find_changed_graders(tags: Mapping[str, str], graders: Mapping[str, str]) -> list[str]:
    """Return the benchmarks whose graders, with their versions, are not those that graded the version's answers."""
    then = _parse_keys(tags.get("graders", ""))
    return [benchmark for benchmark, key in graders.items() if then.get(benchmark) != key]


def format_keys(keys: Mapping[str, str]) -> str:
    """Format one key per benchmark as the text of a tag: `math500=1f2e… mmlu=…`."""
    return " ".join(f"{benchmark}={key}" for benchmark, key in keys.items())


def _parse_keys(text: str) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split())
    return {benchmark: key for benchmark, _, key in parts}
