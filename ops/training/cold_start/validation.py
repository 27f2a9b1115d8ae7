"""Measure the share of valid workflows on held-out problems, which decides whether GRPO may start from a policy.

If a policy rarely generates valid workflows, GRPO mostly teaches it the format. A group without a valid rollout gives
no gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pydantic import Field

from ops.benchmarks.problem_files import read_problems
from ops.conductor.policy import TextWriter
from ops.conductor.rollout import CUT_OFF_RESULT
from ops.config import ColdStart, Recipe, Settings
from ops.core.digests import check_digest, replace_with_digest
from ops.core.errors import DataError, PodiumError
from ops.core.problem import Problem
from ops.workflow.literals import FormatFailure
from ops.workflow.team import Team

RECORD_FILE = "cold_start.json"
"""The file in a policy's folder that holds its `ColdStartRecord`."""
VALIDATION_BATCH = 32
"""The number of workflows that are generated together."""
MAX_SAMPLE = 64
"""The maximum number of problems on which the share is measured if none are held out."""
MAX_REASONS = 3
"""The number of reasons for invalid workflows that a message lists."""
_RUN_AGAIN = "Give `podium run RECIPE` with the policy's recipe, which makes it again"


class TooFewValidWorkflows(PodiumError):
    """Raised if too few completions of the policy are valid workflows for GRPO to start."""


class ValidationResult(Settings):
    """The number of valid workflows among a policy's completions."""

    problems: int
    """The number of problems, each of which has one completion."""
    valid: int
    """The number of completions that are valid workflows."""
    failures: dict[str, int] = Field(default={})
    """The number of completions per reason for being invalid (`ops.workflow.grammar.FormatFailure`), the most frequent
    first."""

    drawn: dict[str, Any] = Field(default={})
    """The sampling settings of the completions (`sampling_settings`)."""

    @property
    def share(self) -> float:
        """Return the share of valid completions, in [0, 1]."""
        return self.valid / self.problems

    def __str__(self) -> str:
        reasons = [f"{name} {count}" for name, count in list(self.failures.items())[:MAX_REASONS]]
        failed = f"; the others: {', '.join(reasons)}" if reasons else ""
        return f"{self.valid} of {self.problems} completions are workflows ({self.share:.1%}){failed}"


class ColdStartRecord(Settings):
    """The record of a cold start, which is stored beside the policy as `cold_start.json`."""

    loss: tuple[float, ...]
    """The loss every ten steps, in nats per token."""
    examples: int = 0
    """The number of SFT examples."""
    left_out: int = 0
    """The number of examples of recursive rounds that were left out, because their prompts leave no room for a
    completion."""
    tokens: int = 0
    """Tokens of all examples, including prompts. Each example is used once."""
    seconds: float = 0.0
    """Seconds of training only."""
    peak_gib: float = 0.0
    """The peak memory of this process until the end of training, in GiB."""
    teacher_workflows: int = 0
    """The number of workflows that the teacher was asked for."""
    teacher_right: int = 0
    """The number of the teacher's workflows that answered right."""
    teacher_usd: float = 0.0
    """USD of the teacher's workflows, including writing them."""
    validation: ValidationResult | None = None
    """The result of the validation, or None if no validation was requested."""

    @classmethod
    def read(cls, policy: Path) -> ColdStartRecord | None:
        """Return the record of the policy in a folder, or None if there was no cold start. Raises `DataError` if it is
        damaged."""
        file = policy / RECORD_FILE
        try:
            check_digest(file, _RUN_AGAIN, missing="accepted")
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DataError(file, "", f"is not the record of a cold start ({error})", _RUN_AGAIN) from None

    def write(self, policy: Path) -> None:
        """Store the record in the policy's folder."""
        with replace_with_digest(policy / RECORD_FILE) as temporary:
            temporary.write_text(self.model_dump_json(indent=1), encoding="utf-8")


class ColdStartAssessment(Settings):
    """The assessment of a policy, which says whether GRPO may start from it, and why."""

    passed: bool
    """True if GRPO may start."""
    said: str
    """The reason in words."""
    validity: ValidationResult | None = None
    """The measured share of valid workflows, or None if it was not measured."""


def sampling_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the sampling settings of GRPO, on which the share of valid workflows depends."""
    grpo = recipe.grpo
    named = {"temperature": grpo.temperature, "max_completion_tokens": grpo.max_completion_tokens}
    return named | recipe.generation.model_dump()


def held_out_problems(mix: Path, recipe: Recipe) -> list[Problem]:
    """Return the problems of the mix that are left out of the cold start's examples; none without a validation.

    They are drawn with the recipe's seed. Raises `DataError` if the mix is missing, or if all of it would be held out.
    """
    settings = recipe.cold_start
    if settings is None or settings.validation is None:
        return []
    problems, count = read_problems(mix), settings.validation.problems
    if count >= len(problems):
        size = f"holds {len(problems)} problems, of which {count} are held out (cold_start.validation.problems)"
        raise DataError(mix, "", size, "Hold fewer out")
    return Random(recipe.seed).sample(problems, count)


def validation_problems(data: Path, recipe: Recipe) -> list[Problem]:
    """Return the problems on which the policy's share of valid workflows is measured, or none if no share is required.

    They are the held-out problems if there are any, otherwise shortlisted problems outside the mix, or else problems of
    the mix. Raises `DataError` as `held_out_problems` does.
    """
    settings, mix = recipe.cold_start, data / "training_mix.jsonl"
    if settings is None or settings.validation is not None or not settings.least_valid:
        return held_out_problems(mix, recipe)
    problems, shortlist = read_problems(mix), data / "shortlist.jsonl"
    taught = {problem.key for problem in problems}
    others = read_problems(shortlist) if shortlist.is_file() else []
    left = [problem for problem in others if problem.key not in taught]
    return Random(recipe.seed).sample(left or problems, min(MAX_SAMPLE, len(left or problems)))


def measure_validity(
    conductor: TextWriter,
    problems: Sequence[Problem],
    team: Team,
    recipe: Recipe,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> ValidationResult:
    """Generate one workflow for each problem and parse it, both with the settings of GRPO. No worker is called.

    `on_progress(done, all, note)` is called after each batch. Raises `PromptTooLongError`.
    """
    failures: Counter[str] = Counter()
    for start in range(0, len(problems), VALIDATION_BATCH):
        prompts = [team.build_messages(problem) for problem in problems[start : start + VALIDATION_BATCH]]
        for completion in conductor.complete(
            prompts,
            temperature=recipe.grpo.temperature,
            seed=recipe.seed + start,
            max_tokens=recipe.grpo.max_completion_tokens,
        ):
            reading = team.parse(completion.text) if completion.is_ended else CUT_OFF_RESULT
            if reading.workflow is None:
                failures[str(reading.failure or FormatFailure.NO_ASSIGNMENT)] += 1
        if on_progress is not None:
            on_progress(min(start + VALIDATION_BATCH, len(problems)), len(problems), "workflows validated")
    valid = len(problems) - failures.total()
    counts = dict(failures.most_common())
    return ValidationResult(problems=len(problems), valid=valid, failures=counts, drawn=sampling_settings(recipe))


def assess_cold_start(policy: Path, settings: ColdStart | None) -> ColdStartAssessment:
    """Judge a policy's stored validation by the thresholds of `settings`, if it has any. Raises `DataError`."""
    if settings is None:
        return ColdStartAssessment(passed=True, said="the recipe has no cold start")
    least = settings.validation.least_valid if settings.validation is not None else settings.least_valid
    if settings.validation is None and not least:
        return ColdStartAssessment(
            passed=True, said="the recipe asks for no share of workflows (cold_start.least_valid is 0)"
        )
    record = ColdStartRecord.read(policy)
    if record is None or record.validation is None:  # the policy has already been trained by GRPO
        return ColdStartAssessment(passed=True, said="nothing was taught here")
    seen = record.validation
    if seen.share >= least:
        return ColdStartAssessment(passed=True, said=f"{seen}; at least {least:.0%} are asked for", validity=seen)
    remedy = _remedy(seen.failures, settings)
    said = f"{policy}: after the cold start {seen}, and GRPO starts from {least:.0%}. {remedy}"
    return ColdStartAssessment(passed=False, said=said, validity=seen)


def check_cold_start(policy: Path, settings: ColdStart | None) -> None:
    """Raise `TooFewValidWorkflows` if GRPO may not start from the policy.

    The message has the share, the most frequent reasons and the remedy.
    """
    found = assess_cold_start(policy, settings)
    if not found.passed:
        raise TooFewValidWorkflows(found.said)


def _remedy(failures: Mapping[str, int], settings: ColdStart) -> str:
    longer = "raise grpo.max_completion_tokens, " if next(iter(failures), "") == FormatFailure.CUT_OFF else ""
    teach = "teach it longer (cold_start.steps) or at another cold_start.learning_rate"
    field = "cold_start.least_valid" if settings.validation is None else "cold_start.validation.least_valid"
    anyway = f"or lower {field}, which keeps this policy"
    return f"{(longer + teach).capitalize()}, {anyway}"
