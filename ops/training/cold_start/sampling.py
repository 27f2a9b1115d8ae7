"""Sample workflows for the cold start: random in shape, guided by the precached responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from ops.core.errors import ConfigError
from ops.core.problem import Problem
from ops.core.settings_files import read_yaml
from ops.workflow.grammar import SOLVE_SUBTASK, Access, AccessMode, Step, Workflow

STEPS_AFTER_SUCCESS = (0.65, 0.25, 0.07, 0.03)
"""Probabilities of 1, 2, 3 and 4 steps if a single worker is known to succeed."""
STEPS_WITHOUT_SUCCESS = (0.2, 0.4, 0.3, 0.1)
ACCESS_PROBABILITY = 0.85
"""Probability that a later step reads the earlier ones."""
PARTIAL_ACCESS_PROBABILITY = 0.5
"""Probability that it reads only some of them, if access is fine-grained and there are several."""
MIN_RELIABLE_ACCURACY = 0.9
"""Accuracy on a subject from which a worker counts as reliable, so that no further workflow is sought."""
REPEAT_PROBABILITY = 0.3
"""Probability that an added step repeats the next one, as a second attempt or check."""
MAX_EXPLORED = 3
"""Tried workflows per problem in the examples: the most reliable of those whose workers are offered."""
_MIN_WEIGHT, _WEIGHT_MENTIONED_HERE, _WEIGHT_MENTIONED_ELSEWHERE, _WEIGHT_PLAIN = 0.01, 1.0, 1.0, 0.6


class Subtask(NamedTuple):
    text: str
    topic: str


class PrecachedResponse(NamedTuple):
    """The fields of a precached response that the sampler needs."""

    worker: str
    problem_key: str
    """The problem's key."""
    subject: str
    text: str
    correct: bool


def load_subtasks(file: Path) -> tuple[Subtask, ...]:
    """The subtasks that a cold-start workflow may use. Raises `ConfigError`."""
    try:
        rows = read_yaml(file)
        return tuple(Subtask(str(row["say"]), str(row["about"]).lower()) for row in rows)
    except (FileNotFoundError, TypeError, KeyError) as error:
        raise ConfigError(file, "", f"cannot be read as subtasks ({error})", "List `say:` and `about:`") from None


class WorkflowSampler:
    """Samples workflows for problems of the mix, deterministic in its seed."""

    def __init__(
        self,
        offered: Sequence[str],
        responses: Sequence[PrecachedResponse],
        subtasks: Sequence[Subtask],
        *,
        success_share: float,
        max_steps: int,
        seed: int,
        access: AccessMode = "binary",
    ) -> None:
        self._ordinals = {name: ordinal for ordinal, name in enumerate(offered)}
        self._subtasks = subtasks
        self._success_share = success_share
        self._max_steps = max_steps
        self._fine_grained = access == "fine_grained"
        self._random = Random(seed)
        self._succeeded: dict[str, list[tuple[str, float]]] = {}
        self._texts: dict[tuple[str, str], str] = {}
        responses = [row for row in responses if row.worker in self._ordinals]
        attempts = Counter((row.worker, row.subject) for row in responses)
        right = Counter((row.worker, row.subject) for row in responses if row.correct)
        self._accuracy = {key: right[key] / count for key, count in attempts.items()}
        for row in responses:
            self._texts[row.worker, row.problem_key] = row.text.lower()
            if row.correct:
                trust = self._accuracy[row.worker, row.subject]
                self._succeeded.setdefault(row.problem_key, []).append((row.worker, trust))
        self._explored: Mapping[str, Sequence[Workflow]] = {}
        self._mention_shares = self._measure_mentions()

    def _measure_mentions(self) -> Mapping[tuple[str, str], float]:
        """Return (worker, subtask) → share of the worker's responses that mention the subtask's topic."""
        totals: dict[str, int] = {}
        spoken: dict[tuple[str, str], float] = {}
        for (worker, _), text in self._texts.items():
            totals[worker] = totals.get(worker, 0) + 1
            for subtask in self._subtasks:
                if subtask.topic in text:
                    spoken[worker, subtask.text] = spoken.get((worker, subtask.text), 0) + 1
        return {key: count / totals[key[0]] for key, count in spoken.items()}

    def is_solved_alone(self, problem: Problem) -> bool:
        """Return whether a worker that is nearly always right on the subject answered the problem alone."""
        return any(trust >= MIN_RELIABLE_ACCURACY for _, trust in self._succeeded.get(problem.key, []))

    def is_likely_guessing(self, worker: str, problem: Problem) -> bool:
        """Return whether the worker seems to guess: on the subject, it is right hardly more often than chance."""
        accuracy = self._accuracy.get((worker, problem.subject), 0.0)
        return bool(problem.choices) and 0.0 < accuracy < 2 / len(problem.choices)

    def add_explored(self, explored: Mapping[str, Sequence[Workflow]]) -> None:
        """Add tried and successful workflows by problem key, most reliable first."""
        self._explored = explored

    def sample_endlessly(self, problems: Sequence[Problem]) -> Iterator[tuple[Problem, Workflow]]:
        """Give problems in random order, each with a sampled workflow, without end."""
        while True:
            problem = self._random.choice(problems)
            yield problem, self.sample_workflow(problem)

    def sample_workflow(self, problem: Problem, ordinals: Collection[int] | None = None) -> Workflow:
        """Sample one workflow.

        With probability `success_share` a known success, or one whose last worker succeeded alone (less often if
        guessing explains the success); else a random one. `ordinals`: the offered ordinals; None: all.
        """
        offered = [name for name, ordinal in self._ordinals.items() if ordinals is None or ordinal in ordinals]
        explored = self._explored_for(problem, ordinals)
        if explored and self._random.random() < self._success_share:
            return self._random.choice(explored)
        succeeded = [
            (worker, trust)
            for worker, trust in self._succeeded.get(problem.key, [])
            if worker in offered and not self.is_likely_guessing(worker, problem)
        ]
        trust = max((trust for _, trust in succeeded), default=0.0)
        guided = self._random.random() < self._success_share * trust
        weights = (STEPS_AFTER_SUCCESS if guided else STEPS_WITHOUT_SUCCESS)[: self._max_steps]
        count = self._random.choices(range(1, len(weights) + 1), weights)[0]
        workers = [self._random.choice(offered) for _ in range(count)]
        if guided:
            workers[-1] = self._random.choices(*zip(*succeeded, strict=True))[0]
        steps = []
        for index, worker in enumerate(workers):
            plain = guided and count == 1
            subtask = SOLVE_SUBTASK if plain and self._random.random() < 0.5 else self._sample_subtask(worker, problem)
            sees = index > 0 and self._random.random() < ACCESS_PROBABILITY
            steps.append(Step(self._ordinals[worker], subtask, self._sample_access(index) if sees else "none"))
        return Workflow(tuple(steps))

    def _explored_for(self, problem: Problem, part: Collection[int] | None) -> Sequence[Workflow]:
        tried = self._explored.get(problem.key, ())
        there = (each for each in tried if part is None or all(step.worker in part for step in each.steps))
        return list(islice(there, MAX_EXPLORED))

    def vary_workflow(self, workflow: Workflow, problem: Problem) -> Workflow:
        """Return the workflow with a step added (if there is room), changed or removed (if there are several)."""
        steps = list(workflow.steps)
        ways = ["change", *(["add"] * 2 if len(steps) < self._max_steps else []), *(["drop"] if len(steps) > 1 else [])]
        way, at = self._random.choice(ways), self._random.randrange(len(steps))
        if way == "drop":
            del steps[at]
            steps[at:] = [_shift_access(step, at, -1) for step in steps[at:]]
        elif way == "add" and self._random.random() < REPEAT_PROBABILITY:
            steps[at:] = [steps[at], *(_shift_access(step, at, 1) for step in steps[at:])]
        else:
            worker = self._random.choice(list(self._ordinals))
            sees = self._random.random() < ACCESS_PROBABILITY
            subtask = self._sample_subtask(worker, problem)
            step = Step(self._ordinals[worker], subtask, self._sample_access(at) if sees else "none")
            later = steps[at + 1 :] if way == "change" else [_shift_access(step, at, 1) for step in steps[at:]]
            steps[at:] = [step, *later]
        steps[0] = Step(steps[0].worker, steps[0].subtask, "none")
        return Workflow(tuple(steps))

    def _sample_access(self, index: int) -> Access:
        """Return the access of a step that reads earlier ones: all, or some of several."""
        if not self._fine_grained or index < 2 or self._random.random() >= PARTIAL_ACCESS_PROBABILITY:
            return "all"
        return tuple(sorted(self._random.sample(range(index), self._random.randrange(1, index))))

    def _sample_subtask(self, worker: str, problem: Problem) -> str:
        here = self._texts.get((worker, problem.key), "")
        weights = [_WEIGHT_PLAIN]
        for subtask in self._subtasks:
            spoken = self._mention_shares.get((worker, subtask.text), 0.0)
            weights.append(
                _MIN_WEIGHT + _WEIGHT_MENTIONED_ELSEWHERE * spoken + _WEIGHT_MENTIONED_HERE * (subtask.topic in here)
            )
        return self._random.choices([SOLVE_SUBTASK, *(subtask.text for subtask in self._subtasks)], weights)[0]


def _shift_access(step: Step, at: int, by: int) -> Step:
    """Return a step after another step was inserted at `at` (`by` 1)
    or removed there (-1); it sees the same other steps.
    """
    if not isinstance(step.access, tuple):
        return step
    kept = (seen for seen in step.access if by > 0 or seen != at)
    return replace(step, access=tuple(seen + by * (seen >= at) for seen in kept))
