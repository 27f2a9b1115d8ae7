"""Define a workflow and parse it from a completion.

Every text gives either a `Workflow` or the reason why it contains none. Parsing takes linear time. The modules
`assignments` and `literals` find and read the lists in the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ops.workflow.assignments import AssignedLists, find_last_block
from ops.workflow.escapes import quote_text
from ops.workflow.literals import DEFECT_WORDS, MAX_TOKENS, FormatFailure, Value

SOLVE_SUBTASK = "Solve the problem."
"""The subtask that only asks for the answer. `Workflow.single` and precaching use it by default."""

Access = Literal["none", "all"] | tuple[int, ...]
"""The earlier steps that a step sees, which are none, all, or those with the given indices (counted from 0)."""
AccessMode = Literal["binary", "fine_grained"]
"""The forms of access that a workflow may use: only none and all, or also lists of step indices."""
OfferedWorkers = int | Collection[int]
"""The workers on offer, given as their number (their ordinals then count from 0) or as their ordinals."""


@dataclass(frozen=True)
class Step:
    """One step of a workflow is one call of a worker.

    Raises `ValueError` if the ordinal is negative, or if the subtask is blank or cannot be encoded as UTF-8.
    """

    worker: int
    """The ordinal of the called worker among the workers on offer (counted from 0)."""
    subtask: str
    """The instruction that the worker gets in addition to the question."""
    access: Access = "none"
    """The earlier steps whose subtasks and responses the worker sees. With "none" it sees only the question."""

    def __post_init__(self) -> None:
        if self.access == ():
            object.__setattr__(self, "access", "none")
        if self.worker < 0:
            raise ValueError(f"worker ordinal {self.worker} is negative")
        if not self.subtask.strip():
            raise ValueError("a subtask must say something")
        if not _is_encodable(self.subtask):
            raise ValueError("a subtask must be text that UTF-8 can encode")


@dataclass(frozen=True)
class Workflow:
    """A workflow is a sequence of steps, and the response of its last step is the answer.

    A workflow without steps occurs only in later rounds, where it keeps the previous answer. Raises `ValueError` if a
    step sees itself, a later step, or the same step twice.
    """

    steps: tuple[Step, ...]
    """The steps in the order in which the Conductor wrote them."""

    def __post_init__(self) -> None:
        for index, step in enumerate(self.steps):
            if isinstance(step.access, tuple) and (problem := _find_access_problem(step.access, index)):
                raise ValueError(f"step {index}: {problem}")

    @classmethod
    def single(cls, worker: int, subtask: str = SOLVE_SUBTASK) -> Workflow:
        """Return the workflow that calls one worker once."""
        return cls((Step(worker, subtask),))

    @property
    def is_empty(self) -> bool:
        """Return whether the workflow has no steps, which keeps the previous answer in a recursive round."""
        return not self.steps

    def visible_steps(self, index: int) -> tuple[int, ...]:
        """Return the indices of the earlier steps whose subtask and response step `index` sees, in ascending order."""
        access = self.steps[index].access
        if access == "all":
            return tuple(range(index))
        return tuple(sorted(access)) if isinstance(access, tuple) else ()

    def needed_steps(self) -> frozenset[int]:
        """Return the indices of the steps that can influence the answer.

        These are the last step and all steps that it sees directly or through other steps.
        """
        reached: set[int] = set()
        waiting = [len(self.steps) - 1] if self.steps else []
        while waiting:
            index = waiting.pop()
            if index not in reached:
                reached.add(index)
                waiting.extend(self.visible_steps(index))
        return frozenset(reached)

    def without_subtasks(self) -> Workflow:
        """Return the same workflow with `SOLVE_SUBTASK` as the subtask of every step."""
        return Workflow(tuple(replace(step, subtask=SOLVE_SUBTASK) for step in self.steps))

    def renumbered(self, ordinals: Sequence[int]) -> Workflow:
        """Return the same workflow with new ordinals, in which the worker `ordinals[i]` has the ordinal `i`.

        Raises `ValueError` if the worker of a step is not in `ordinals`.
        """
        return Workflow(tuple(replace(step, worker=ordinals.index(step.worker)) for step in self.steps))

    def render(self) -> str:
        """Return the three lists as text, one on each line. `parse_workflow` reads them back as an equal workflow."""
        subtasks = ", ".join(quote_text(step.subtask) for step in self.steps)
        access = ", ".join(_render_access(step.access) for step in self.steps)
        ids = ", ".join(str(step.worker) for step in self.steps)
        return f"model_id = [{ids}]\nsubtasks = [{subtasks}]\naccess_list = [{access}]"


@dataclass(frozen=True)
class ParseResult:
    """The result of parsing a completion is either a workflow or the reason why the text contains none."""

    workflow: Workflow | None
    """The parsed workflow, or None after a failure."""
    failure: FormatFailure | None = None
    """The kind of failure, which training counts, or None if the text was parsed."""
    detail: str = ""
    """The failure in words for a person, or "" if the text was parsed."""


class _InvalidWorkflowError(Exception):
    def __init__(self, failure: FormatFailure, detail: str) -> None:
        super().__init__(detail)
        self.failure, self.detail = failure, detail


def offered_ordinals(offered: OfferedWorkers) -> Collection[int]:
    """Return the ordinals of the workers on offer."""
    return range(offered) if isinstance(offered, int) else offered


def parse_workflow(
    text: str, *, offered: OfferedWorkers, max_steps: int = 5, access: AccessMode = "binary", recursive: bool = False
) -> ParseResult:
    """Parse the workflow in a completion. Never raises an exception, for any text.

    If the text contains several complete blocks of the three lists, the last one counts. `offered` is the number of
    workers on offer or their ordinals. `max_steps` is the largest number of steps that a workflow may have. `access`
    selects the allowed forms of access. `recursive` is True for a later round, in which three empty lists are valid
    and keep the previous answer.
    """
    try:
        return ParseResult(_read_workflow(text, offered_ordinals(offered), max_steps, access, recursive))
    except _InvalidWorkflowError as invalid:
        return ParseResult(None, invalid.failure, invalid.detail)


_MISSING_LISTS = {
    "model_id": FormatFailure.MISSING_MODEL_ID,
    "subtasks": FormatFailure.MISSING_SUBTASKS,
    "access_list": FormatFailure.MISSING_ACCESS_LIST,
}


def _read_workflow(text: str, offered: Collection[int], max_steps: int, mode: AccessMode, recursive: bool) -> Workflow:
    # If every step lists all earlier ones by index, the length of the access list is quadratic in the number of steps.
    lists = find_last_block(text, max(MAX_TOKENS, 2 * max_steps * (max_steps + 2)))
    if lists.block is None:
        raise _explain_missing_block(lists)
    workers, subtasks, accesses = lists.block
    if len(workers) == len(subtasks) == 1 and not accesses:  # `access_list = []` for one step
        accesses = [[]]
    _check_lengths(len(workers), len(subtasks), len(accesses), max_steps, recursive)
    steps = (
        Step(_parse_worker(workers[i], i, offered), _parse_subtask(subtasks[i], i), _parse_access(accesses[i], i, mode))
        for i in range(len(workers))
    )
    return Workflow(tuple(steps))


def _explain_missing_block(lists: AssignedLists) -> _InvalidWorkflowError:
    if keys := [name for name in lists.missing if name in lists.keys]:
        return _InvalidWorkflowError(
            FormatFailure.MAPPING, f"{keys[0]} is a key, not a name that a list is assigned to"
        )
    if len(lists.missing) == len(_MISSING_LISTS):
        return _InvalidWorkflowError(
            FormatFailure.NO_ASSIGNMENT, "none of model_id, subtasks and access_list is assigned"
        )
    for name, missing in _MISSING_LISTS.items():
        if name in lists.missing:
            return _InvalidWorkflowError(missing, f"{name} is not assigned")
        if defect := lists.defects.get(name):
            return _InvalidWorkflowError(defect, f"{name} is assigned, but its value is {DEFECT_WORDS[defect]}")
    return _InvalidWorkflowError(FormatFailure.AMBIGUOUS, "which three of the lists belong together is not plain")


def _check_lengths(workers: int, subtasks: int, accesses: int, max_steps: int, recursive: bool) -> None:
    if not workers == subtasks == accesses:
        raise _InvalidWorkflowError(
            FormatFailure.LENGTH_MISMATCH,
            f"{workers} in model_id, {subtasks} in subtasks, {accesses} in access_list",
        )
    if workers == 0 and not recursive:
        raise _InvalidWorkflowError(FormatFailure.EMPTY, "the three lists are empty")
    if workers > max_steps:
        raise _InvalidWorkflowError(FormatFailure.TOO_MANY_STEPS, f"{workers} steps; at most {max_steps} are allowed")


def _parse_worker(value: Value, index: int, offered: Collection[int]) -> int:
    value = _parse_number(value)
    if not isinstance(value, int):
        raise _InvalidWorkflowError(FormatFailure.BAD_WORKER, f"step {index}: {_shorten(value)} is no integer")
    if value not in offered:
        those = f"0 … {len(offered) - 1}" if isinstance(offered, range) else ", ".join(map(str, offered))
        raise _InvalidWorkflowError(FormatFailure.UNKNOWN_WORKER, f"step {index}: {value} is not among {those}")
    return value


def _parse_subtask(value: Value, index: int) -> str:
    if not isinstance(value, str) or not _is_encodable(value):
        raise _InvalidWorkflowError(FormatFailure.BAD_SUBTASK, f"step {index}: {_shorten(value)} is not text")
    if not value.strip():
        raise _InvalidWorkflowError(FormatFailure.EMPTY_SUBTASK, f"step {index}: the subtask is empty")
    return value


def _parse_access(value: Value, index: int, mode: AccessMode) -> Access:
    if value == []:
        return "none"
    if _is_all(value) or (isinstance(value, list) and len(value) == 1 and _is_all(value[0])):
        return "all"
    if mode == "binary" or not isinstance(value, list):
        raise _InvalidWorkflowError(
            FormatFailure.BAD_ACCESS, f'step {index}: {_shorten(value)} is neither [] nor ["all"]'
        )
    indices = tuple(number for item in value if isinstance(number := _parse_number(item), int))
    if len(indices) < len(value):
        raise _InvalidWorkflowError(
            FormatFailure.BAD_ACCESS, f"step {index}: {_shorten(value)} is no list of step indices"
        )
    if problem := _find_access_problem(indices, index):
        later = any(not 0 <= seen < index for seen in indices)
        raise _InvalidWorkflowError(
            FormatFailure.ACCESS_NOT_EARLIER if later else FormatFailure.BAD_ACCESS,
            f"step {index}: {problem}",
        )
    return indices


_DIGITS = re.compile(r"0|[1-9][0-9]{0,17}")


def _parse_number(value: Value) -> Value:
    """Return a string of digits as an integer, and any other value unchanged."""
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value


def _is_all(value: Value) -> bool:
    return isinstance(value, str) and value.strip().lower() == "all"


def _find_access_problem(access: Sequence[int], index: int) -> str:
    if wrong := [seen for seen in access if not 0 <= seen < index]:
        return f"access to {wrong[0]}, which is not an earlier step"
    return "access names one step twice" if len(set(access)) < len(access) else ""


def _render_access(access: Access) -> str:
    if isinstance(access, tuple):
        return "[" + ", ".join(map(str, access)) + "]"
    return '["all"]' if access == "all" else "[]"


_SURROGATE = re.compile("[\ud800-\udfff]")


def _is_encodable(text: str) -> bool:
    return _SURROGATE.search(text) is None


def _shorten(value: Value) -> str:
    return f"{value!r:.60}"
