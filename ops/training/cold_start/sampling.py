"""Sample workflows for the cold start, whose shape is random and whose workers are guided by the precached
responses."""

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
"""The probabilities of 1, 2, 3 and 4 steps if a worker is known to solve the problem alone."""
STEPS_WITHOUT_SUCCESS = (0.2, 0.4, 0.3, 0.1)
"""The probabilities of 1, 2, 3 and 4 steps otherwise."""
ACCESS_PROBABILITY = 0.85
"""The probability that a later step reads earlier ones."""
PARTIAL_ACCESS_PROBABILITY = 0.5
"""The probability that it reads only some of them, if access is fine-grained and there are several."""
MIN_RELIABLE_ACCURACY = 0.9
"""The accuracy on a subject from which a worker counts as reliable, so that no further workflow is sought."""
REPEAT_PROBABILITY = 0.3
"""The probability that an added step repeats the next one, as a second attempt or check."""
MAX_EXPLORED = 3
"""The number of tried workflows per problem among which examples are drawn: the most reliable ones whose workers are
all offered."""
_MIN_WEIGHT, _WEIGHT_MENTIONED_HERE, _WEIGHT_MENTIONED_ELSEWHERE, _WEIGHT_PLAIN = 0.01, 1.0, 1.0, 0.6


class Subtask(NamedTuple):
    """A subtask that a cold-start workflow may give to a worker."""

    text: str
    """The instruction to the worker."""
    topic: str
    """A word by which a response shows that the worker deals with the subtask's topic."""


class PrecachedResponse(NamedTuple):
    """The fields of a precached response that the sampler needs."""

    worker: str
    """The name of the worker."""
    problem_key: str
    """The key of the problem."""
    subject: str
    """The subject of the problem."""
    text: str
    """The text of the response."""
    correct: bool
    """True if the answer is right."""


def load_subtasks(file: Path) -> tuple[Subtask, ...]:
    """Return the subtasks that a cold-start workflow may use. Raises `ConfigError` if the file cannot be read as
    such."""
    try:
        rows = read_yaml(file)
        return tuple(Subtask(str(row["say"]), str(row["about"]).lower()) for row in rows)
    except (FileNotFoundError, TypeError, KeyError) as error:
        raise ConfigError(file, "", f"cannot be read as subtasks ({error})", "List `say:` and `about:`") from None


class WorkflowSampler:
    """Samples workflows for problems of the training mix. The same seed gives the same workflows."""

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
        """Return the share (0-1) of a worker's responses that mention a subtask's topic, by (worker, subtask)."""
        totals: dict[str, int] = {}
        spoken: dict[tuple[str, str], float] = {}
        for (worker, _), text in self._texts.items():
            totals[worker] = totals.get(worker, 0) + 1
            for subtask in self._subtasks:
                if subtask.topic in text:
                    spoken[worker, subtask.text] = spoken.get((worker, subtask.text), 0) + 1
        return {key: count / totals[key[0]] for key, count in spoken.items()}

    def is_solved_alone(self, problem: Problem) -> bool:
        """Return True if a worker that is nearly always right on the subject answered the problem alone."""
        return any(trust >= MIN_RELIABLE_ACCURACY for _, trust in self._succeeded.get(problem.key, []))

    def is_likely_guessing(self, worker: str, problem: Problem) -> bool:
        """Return True if the worker is right on the subject hardly more often than by guessing."""
        accuracy = self._accuracy.get((worker, problem.subject), 0.0)
        return bool(problem.choices) and 0.0 < accuracy < 2 / len(problem.choices)

    def add_explored(self, explored: Mapping[str, Sequence[Workflow]]) -> None:
        """Add tried and successful workflows by problem key, the most reliable first."""
        self._explored = explored

    def sample_endlessly(self, problems: Sequence[Problem]) -> Iterator[tuple[Problem, Workflow]]:
        """Yield problems in random order without end, each with a sampled workflow."""
        while True:
            problem = self._random.choice(problems)
            yield problem, self.sample_workflow(problem)

    def sample_workflow(self, problem: Problem, ordinals: Collection[int] | None = None) -> Workflow:
        """Return a sampled workflow for a problem.

        With probability `success_share` it is one that is known to succeed, or one whose last worker succeeded alone.
        The latter is less frequent if guessing explains the worker's success. Otherwise the workflow is random.
        `ordinals` holds the offered ordinals, and None stands for all workers.
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
        """Return the most reliable tried workflows of a problem whose workers are all offered."""
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
        """Return the access of a step that reads earlier ones: all of them, or some if there are several."""
        if not self._fine_grained or index < 2 or self._random.random() >= PARTIAL_ACCESS_PROBABILITY:
            return "all"
        return tuple(sorted(self._random.sample(range(index), self._random.randrange(1, index))))

    def _sample_subtask(self, worker: str, problem: Problem) -> str:
        """Return a subtask for a worker. One whose topic the worker's responses mention is drawn more often."""
        here = self._texts.get((worker, problem.key), "")
        weights = [_WEIGHT_PLAIN]
        for subtask in self._subtasks:
            spoken = self._mention_shares.get((worker, subtask.text), 0.0)
            weights.append(
                _MIN_WEIGHT + _WEIGHT_MENTIONED_ELSEWHERE * spoken + _WEIGHT_MENTIONED_HERE * (subtask.topic in here)
            )
        return self._random.choices([SOLVE_SUBTASK, *(subtask.text for subtask in self._subtasks)], weights)[0]


def _shift_access(step: Step, at: int, by: int) -> Step:
    """Return a step after another step was inserted at the place `at` (`by` is 1) or removed there (`by` is -1).

    The step sees the same other steps as before.
    """
    if not isinstance(step.access, tuple):
        return step
    kept = (seen for seen in step.access if by > 0 or seen != at)
    return replace(step, access=tuple(seen + by * (seen >= at) for seen in kept))
