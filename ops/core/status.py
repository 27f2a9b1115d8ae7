"""What became of a call, a step, a workflow or a request."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """What became of a call, a step, a workflow or a request.

    If several steps of a workflow fail, the workflow has the status among theirs that comes first here.
    """

    OK = "ok"
    """A step, or a row in a table of responses, has a response."""
    ANSWERED = "answered"
    """A call, a workflow or a request has an answer."""
    CUT = "cut"
    """The response ended at the worker's `max_tokens`."""
    WITHHELD = "withheld"
    """The provider withheld the text of the response, which was paid for."""
    # the failures of a step
    REFUSED = "refused"
    """The provider refused to answer these messages, for example because of a content filter."""
    REJECTED = "rejected"
    """The provider rejected the request itself, for example because of one of its parameters."""
    TOO_LONG = "too_long"
    """The messages do not fit into the worker's context."""
    DECLINED = "declined"
    """The model refused to answer."""
    TOOL_CALLS = "tool_calls"
    """The model called a tool instead of answering."""
    REASONING = "reasoning"
    """The response contains nothing but reasoning."""
    EMPTY = "empty"
    """The response has no text for another reason."""
    MALFORMED = "malformed"
    """The response is not the JSON that was asked for."""
    TIMED_OUT = "timed_out"
    """The deadline passed. A step has this status if its call was in flight."""
    UNREACHABLE = "unreachable"
    """No connection to the worker could be made."""
    # steps whose worker was not called
    PRUNED = "pruned"
    """The answer cannot depend on the step."""
    NOT_RUN = "not_run"
    """Another step had failed, the deadline had passed, or the request asked for a workflow only."""
    # requests to a server
    NO_WORKFLOW = "no_workflow"
    """The Conductor wrote no valid workflow."""
    OVER_BUDGET = "over_budget"
    """The budget of the request does not allow the next call."""
    SERVER_BUDGET = "server_budget"
    """The budget of all requests does not allow the next call."""
    WRITER_FAILED = "writer_failed"
    """The Conductor could not write a workflow, for example because its worker did not answer."""
    MISCONFIGURED = "misconfigured"
    """The key or the account of a worker is wrong."""
    CANCELLED = "cancelled"
    """The client has disconnected, or the request is still being answered."""

    @property
    def is_failure(self) -> bool:
        """Whether a step with this status has failed, so that its workflow has no answer."""
        return self in _FAILURES

    @property
    def is_scorable(self) -> bool:
        """Whether it is known which answer the system gives, even if it is none.

        If not, a rollout has no reward and is left out of all averages. Every failure but these two counts as a wrong
        answer, because the workers would fail in the same way if they were called again.
        """
        return self not in (Status.TIMED_OUT, Status.UNREACHABLE)


_FAILURES = frozenset({
    Status.REFUSED, Status.REJECTED, Status.TOO_LONG, Status.DECLINED, Status.TOOL_CALLS, Status.REASONING,
    Status.EMPTY, Status.MALFORMED, Status.UNREACHABLE,
})  # fmt: skip
