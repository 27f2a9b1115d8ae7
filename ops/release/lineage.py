"""A model version's tags: its lineage, and the pool and data that it was tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ops.core.errors import PodiumError


class Refused(PodiumError):
    """A version must not be released, not even by an override: its lineage, scores or files differ from what it
    states."""


@dataclass(frozen=True)
class Lineage:
    """The origin of a model version; every field becomes a tag. `training_cost_usd` is in USD."""

    git_commit: str
    dvc_revision: str
    policy: str
    """The policy's key, which the scores must name."""
    pool_answers_key: str
    pool_prices_key: str
    recipe: str
    training_cost_usd: float
    evaluation: str = ""
    """Key of everything that its scores depend on: policy, pool, questions, settings (`Comparison.origin`)."""
    questions: str = ""
    """The key of each benchmark's questions: `math500=1f2e… mmlu=…`."""
    graders: str = ""
    """The graders of each benchmark with their versions: `math500=math:1f2e… mmlu=choice:…`."""

    def tags(self) -> dict[str, str]:
        """Return the fields that have a value."""
        return {name: str(value) for name, value in vars(self).items() if str(value)}


OPTIONAL = frozenset({"evaluation", "questions", "graders"})
"""Tags that versions of other checkouts may lack."""
REQUIRED = tuple(field.name for field in fields(Lineage) if field.name not in OPTIONAL)


def check_complete(version: str, tags: Mapping[str, str]) -> None:
    """Raise `Refused` unless the version's lineage is complete."""
    if missing := [name for name in REQUIRED if not tags.get(name, "").strip()]:
        remedy = "Materialize registered_model again: it registers the policy with its lineage"
        raise Refused(f"version {version}: lineage: {', '.join(missing)} is missing among its tags. {remedy}")


def check_claims(version: str, tags: Mapping[str, str], shown: Mapping[str, str]) -> None:
    """Raise `Refused` if a tag differs from the value in `shown` (by tag) that the version is judged by."""
    for name, value in shown.items():
        if (claimed := tags.get(name)) and claimed != value:
            remedy = "Materialize benchmark_scores, leaderboard and registered_model so that they agree"
            raise Refused(
                f"version {version}: {name}: the version says {claimed}, and the current evaluation is of {value}. "
                f"{remedy}"
            )


def questions_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return benchmark → key of the questions that the version was scored on; empty if the tag is missing."""
    return _pairs(tags.get("questions", ""))


def judged_otherwise(tags: Mapping[str, str], graders: Mapping[str, str]) -> list[str]:
    """Return the benchmarks whose graders, with their versions, are not those that judged the version."""
    then = _pairs(tags.get("graders", ""))
    return [benchmark for benchmark, key in graders.items() if then.get(benchmark) != key]


def as_tag(keys: Mapping[str, str]) -> str:
    """Return benchmark → key as the text of a tag."""
    return " ".join(f"{benchmark}={key}" for benchmark, key in keys.items())


def _pairs(text: str) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split())
    return {benchmark: key for benchmark, _, key in parts}
