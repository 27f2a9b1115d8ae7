"""What a request may wish for beside its question: budget, deadline, workers, and what it is told."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from ops.benchmarks.registry import BENCHMARKS
from ops.config import Settings
from ops.core.errors import DataError
from ops.core.problem import Problem

GRADERS = ("math", "choice", "text", "code")


class RequestError(DataError):
    """A request cannot be carried out as it stands: `where` names the parameter."""

    def __init__(self, parameter: str, problem: str, remedy: str) -> None:
        super().__init__("request", parameter, problem, remedy)


class UnknownModelError(RequestError):
    """A request names a model that is not served here."""


class RequestOptions(Settings):
    """The object `podium` of a request to OpenAI's routes, and `custom_inputs` of one to MLflow's."""

    grader: Literal["math", "choice", "text", "code"] | None = None
    """The form in which workers are told to answer; None: "choice" with choices, else "text"."""
    choices: tuple[str, ...] = ()
    """The choices of a multiple-choice question."""
    execute: bool = True
    """False: the workflow is written, and no worker asked."""
    budget_usd: float | None = Field(default=None, ge=0)
    """USD for the request's calls; None: what the server allows. Responses from the cache cost nothing."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds until the answer; None: what the server allows."""
    allowed: tuple[str, ...] | None = None
    """Names of the only workers that may be asked; None: all."""
    forbidden: tuple[str, ...] = ()
    """Names of workers that must not be asked."""
    preference: Literal["quality", "cost"] = "quality"
    """"quality": all workers on offer and all rounds that the policy was trained for. "cost": the dearer half of the
    workers is not offered, and there is one round."""
    workflow: bool = False
    """Whether the response tells the workflow and every step's subtask and response."""


def read_options(values: object, place: str) -> RequestOptions:
    """The options in a request's field `place`. Raises `RequestError`."""
    if values is None:
        return RequestOptions()
    if not isinstance(values, Mapping):
        raise RequestError(place, "is not an object", f"Known keys: {', '.join(RequestOptions.model_fields)}")
    try:
        return RequestOptions.model_validate(dict(values) | {"choices": values.get("choices") or ()})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        known = f"Known keys: {', '.join(RequestOptions.model_fields)}"
        remedy = known if first["type"] == "extra_forbidden" else f"Found {first['input']!r:.80}"
        raise RequestError(f"{place}.{field}", first["msg"], remedy) from None


def question(text: str, options: RequestOptions, place: str = "podium") -> Problem:
    """A user's question as a problem: its grader decides the form of the answer, and nothing is graded.

    Raises `RequestError` where it is empty.
    """
    if not text.strip():
        raise RequestError("input", "holds no question", "Send a user message with text")
    grader = options.grader or ("choice" if options.choices else "text")
    domain = next(entry.domain for entry in BENCHMARKS.values() if entry.grader == grader)
    row: dict[str, Any] = {
        "id": uuid.uuid4().hex, "benchmark": "question", "domain": domain, "split": "test", "source": "user",
        "question": text.strip(), "answer": "", "grader": grader, "choices": list(options.choices),
    }  # fmt: skip
    try:
        return Problem.from_row(row)
    except (DataError, ValueError) as error:
        raise RequestError(place, f"makes no question ({error})", "Check grader and choices") from None


def check_worker_names(options: RequestOptions, known: Collection[str]) -> None:
    """Raise `RequestError` for a worker that is not served: a misspelt name must not let anybody be asked."""
    for field in ("allowed", "forbidden"):
        for name in getattr(options, field) or ():
            if name not in known:
                raise RequestError(f"podium.{field}", f"names {name!r}", f"Workers here: {', '.join(known)}")
