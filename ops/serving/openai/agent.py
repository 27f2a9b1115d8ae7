"""Requests to an agent that is logged in MLflow (`mlflow/agent.py`). Their options are in `custom_inputs`, and the
account of the answer is returned in `custom_outputs`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from ops.serving.answer import Answer
from ops.serving.openai.responses import describe_usage, make_message_item, make_step_item, read_agent_request
from ops.serving.request_options import check_encodable
from ops.workflow.trace import StepTrace


class AgentExchange:
    """A valid request to the agent, and its response."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Read a request. Raises `RequestError`."""
        check_encodable(request)
        self.problem, self.options = read_agent_request(request)

    def write_response(self, answer: Answer) -> dict[str, Any]:
        """Return the response. Without an answer, its text is the reason. `custom_outputs` hold the whole account."""
        outputs = answer.as_account(texts=True)
        if answer.text is not None:
            return _make_response(answer.text, "completed", outputs) | {"usage": describe_usage(answer)}
        reason = f"No answer ({answer.status}): {answer.error}"
        error = {"code": answer.status, "message": reason}
        return _make_response(reason, "failed", outputs) | {"error": error, "usage": describe_usage(answer)}

    def write_step(self, step: StepTrace) -> dict[str, Any]:
        """Return a step as an item of the output."""
        return make_step_item(step, texts=True)


def _make_response(text: str, status: str, outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "created_at": time.time(),
        "object": "response",
        "output": [make_message_item(text)],
        "status": status,
        "custom_outputs": outputs,
    }
