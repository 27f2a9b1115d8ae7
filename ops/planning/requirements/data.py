"""The requirements of the recipe's problems."""

from __future__ import annotations

from collections.abc import Iterator

from ops.benchmarks.registry import BENCHMARKS
from ops.config.base import has_hub_token
from ops.core.errors import format_size
from ops.planning.recipe_plan import MissingRequirement, RecipePlan, Requirement


def require_revisions(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that every hub dataset is pinned to a commit."""
    for name, source in plan.recipe.benchmarks.items():
        if source.source == "hub" and source.revision is None:
            address = f"https://huggingface.co/datasets/{BENCHMARKS[name].hub.id}"
            yield MissingRequirement(
                f"benchmarks.{name}.revision",
                "an unpinned dataset can change under every score",
                f"`git ls-remote {address} HEAD` prints the newest commit",
            )


def require_files(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that the files named in the recipe exist."""
    for name, source in plan.recipe.benchmarks.items():
        if source.source != "file":
            continue
        for file in dict.fromkeys((*source.files("train"), *source.files("test"))):
            path = plan.setup.workspace.root / file
            if not path.expanduser().is_file():
                yield MissingRequirement(
                    str(file), f"benchmarks.{name} names it", f"Put it there ({path}), or name another file"
                )


def require_hub_token(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require a hub token for a gated dataset."""
    asked = [
        BENCHMARKS[name].hub.id
        for name, source in plan.recipe.benchmarks.items()
        if source.source == "hub" and BENCHMARKS[name].hub.is_gated
    ]
    if asked and not has_hub_token():
        pages = ", ".join(f"https://huggingface.co/datasets/{each}" for each in asked)
        yield MissingRequirement(
            "HF_TOKEN",
            f"the hub asks for an account before it gives {', '.join(asked)}",
            f"Accept the terms at {pages}, then set HF_TOKEN or run `hf auth login`",
        )


def report_left_out(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Note the gated benchmarks and expensive workers that are left out with the recipe's consent, and refuse other
    ones."""
    for each in plan.setup.left_out:
        yield MissingRequirement(each.what, each.why, each.remedy, refuses=not each.agreed)


def require_disk_for_tests(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require enough disk space for hidden tests."""
    has, needs = plan.machine.disk_gib, plan.hidden_tests_gib
    if needs > has:
        why = (
            f"hidden tests of {', '.join(plan.hidden_tests)} take {format_size(needs)}, and {format_size(has)} are free"
        )
        yield MissingRequirement("disk", why, "Free some, or use a larger disk")


REQUIREMENTS: tuple[Requirement, ...] = (
    require_revisions,
    require_files,
    require_hub_token,
    require_disk_for_tests,
    report_left_out,
)
"""The checks of this module, in the order in which their results are reported."""
