"""The options of a request beside its question: budget, deadline, workers, and how much the response shows."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, Strict, ValidationError, field_validator, model_validator

from ops.benchmarks.registry import BENCHMARKS
from ops.config import Settings, Vote
from ops.config.loading import clean_validation_message, suggest_correction
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.grading import GRADERS

Flag = Annotated[bool, Strict()]
Number = Annotated[float, Strict()]
Text = Annotated[str, Strict()]


class RequestError(DataError):
    """A request is invalid. Its attribute `where` names the parameter."""

    def __init__(self, parameter: str, problem: str, remedy: str) -> None:
        super().__init__("request", parameter, problem, remedy)


class UnknownModelError(RequestError):
    """A request names a model that this server does not serve."""


class QuestionTooLongError(RequestError):
    """The question makes a prompt that is longer than the policy can read."""

    def __init__(self, parameter: str, limit: int) -> None:
        problem = f"leads to a prompt of more than the {limit:,} tokens that the Conductor reads"
        super().__init__(parameter, problem, "Send a shorter question or fewer earlier turns")


class RequestOptions(Settings):
    """The object `podium` of a request to OpenAI's routes, and `custom_inputs` of a request to MLflow's."""

    grader: Text | None = None
    """The grader whose form of answer workers are asked for; None: "choice" with choices, else "open": any."""
    response_format: dict[str, Any] | None = None
    """The JSON that the last step must answer with, as OpenAI's parameter of this name says it."""
    choices: tuple[Text, ...] = ()
    """The choices of a multiple-choice question."""
    execute: Flag = True
    """False: the Conductor writes the workflow, and no worker is called."""
    budget_usd: Number | None = Field(default=None, ge=0, allow_inf_nan=False)
    """USD for the request's calls; None: what the server allows. Responses from the cache cost nothing."""
    deadline_s: Number | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds until the answer; None: what the server allows."""
    allowed: tuple[Text, ...] | None = None
    """Names of the only workers that may be called; None: all."""
    forbidden: tuple[Text, ...] = ()
    """Names of workers that must not be called."""
    preference: Literal["quality", "cost"] = "quality"
    """"quality": all workers on offer and all rounds that the policy was trained for. "cost": the more expensive half
    of the workers is not offered, and there is one round."""
    vote: Vote | None = None
    """Several workflows answer the question, whose form must not be `open`; None: as the server's settings say."""
    workflow: Flag = False
    """Whether the response shows the workflow and every step's subtask and response."""
    _field: str = PrivateAttr(default="podium")

    @field_validator("grader")
    @classmethod
    def _is_a_grader(cls, name: str | None) -> str | None:
        known = [each.name for each in GRADERS.values() if not each.needs_settings]
        if name is not None and name not in known:
            raise ValueError(f"should be one of {', '.join(known)}")
        return name

    @field_validator("response_format")
    @classmethod
    def _is_a_form(cls, form: dict[str, Any] | None) -> dict[str, Any] | None:
        return read_response_format(form)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.response_format is not None and not self.is_open:
            raise ValueError("JSON is asked for: leave grader and choices out")
        return self

    @property
    def is_open(self) -> bool:
        """Return whether the answer may have any form."""
        return not self.choices and self.grader in (None, "open")

    @property
    def field(self) -> str:
        """Return the field of the request that holds the options, for error messages."""
        return self._field


def read_response_format(form: object) -> dict[str, Any] | None:
    """Return the JSON format that OpenAI's `response_format` demands; None if any text will do. Raises `ValueError`."""
    if form is None or form == {"type": "text"}:
        return None
    if isinstance(form, dict):
        described: Any = form.get("json_schema")
        if form == {"type": "json_object"}:
            return form
        named = isinstance(described, dict) and isinstance(described.get("name"), str)
        if form.get("type") == "json_schema" and named and isinstance(described.get("schema"), dict):
            return form
    raise ValueError("is no form: send type text, json_object, or json_schema with json_schema.name and .schema")


def read_options(values: object, field: str) -> RequestOptions:
    """Read the options in the request's `field`. Raises `RequestError`."""
    known = f"Known keys: {', '.join(RequestOptions.model_fields)}"
    if not isinstance(values, Mapping | None):
        raise RequestError(field, "is not an object", known)
    given = {name: value for name, value in (values or {}).items() if value is not None}
    try:
        options = RequestOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in (field, *first["loc"]))
        keys = f"Known keys: {', '.join(Vote.model_fields)}" if first["loc"][:1] == ("vote",) else known
        remedy = keys if first["type"] == "extra_forbidden" else suggest_correction(first["input"])
        raise RequestError(place, clean_validation_message(first), remedy) from None
    options._field = field
    if options.vote is not None and options.vote.workflows > 1 and options.is_open:
        problem = "needs answers that can be compared, and those of the grader `open` cannot"
        raise RequestError(f"{field}.vote", problem, "Name the form of the answer: grader text, math, choice or code")
    return options


def make_problem(text: str, options: RequestOptions, field: str = "messages") -> Problem:
    """Return a user's question as a problem. Its grader decides the form of the answer; nothing is graded.

    `field` is the part of the request that holds the text. Raises `RequestError` if the text is empty.
    """
    if not text.strip():
        raise RequestError(field, "holds no question", "Send a user message with text")
    grader = options.grader or ("choice" if options.choices else "open")
    like = "text" if grader == "open" else grader
    domain = next(entry.domain for entry in BENCHMARKS.values() if entry.grader == like)
    row: dict[str, Any] = {
        "id": uuid.uuid4().hex, "benchmark": "question", "domain": domain, "split": "test", "source": "user",
        "question": text.strip(), "answer": "", "grader": grader, "choices": list(options.choices),
    }  # fmt: skip
    try:
        return Problem.from_row(row)
    except (DataError, ValueError) as error:
        problem = f"is not a valid question ({error})"
        raise RequestError(f"{options.field}.choices", problem, "Check grader and choices") from None


def check_worker_names(options: RequestOptions, known: Collection[str]) -> None:
    """Raise `RequestError` for a worker that is not served, because a misspelt name must not widen the choice of
    workers."""
    for field in ("allowed", "forbidden"):
        for name in getattr(options, field) or ():
            if name not in known:
                raise RequestError(f"{options.field}.{field}", f"names {name!r}", f"Workers here: {', '.join(known)}")


def check_encodable(values: object, field: str = "") -> None:
    """Raise `RequestError`, which names the field, for a text with half of a surrogate pair. UTF-8 cannot encode it, so
    no tokenizer, provider or response can hold it."""
    if isinstance(values, str):
        try:
            values.encode()
        except UnicodeEncodeError as error:
            problem = f"has half of a surrogate pair (U+{ord(values[error.start]):04X}) at character {error.start}"
            raise RequestError(field or "(body)", problem, "Send valid Unicode: both halves, or neither") from None
    elif isinstance(values, Mapping):
        for name, value in values.items():
            check_encodable(name, f"{field or '(body)'}, the name of a key")
            check_encodable(value, f"{field}.{name}" if field else str(name))
    elif isinstance(values, list | tuple):
        for index, value in enumerate(values):
            check_encodable(value, f"{field}[{index}]")
