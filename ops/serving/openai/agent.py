"""Requests to an agent that is logged in MLflow (`mlflow/agent.py`). Their options are in `custom_inputs`, and the
account of the answer is returned in `custom_outputs`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from ops.serving.answer import Answer
from ops.serving.openai.responses import message_item, read_agent, step_item, usage
from ops.serving.request_options import check_encodable
from ops.workflow.trace import StepTrace


class Exchange:
    """A valid request to the agent, and its response."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Read a request. Raises `RequestError`."""
        check_encodable(request)
        self.problem, self.options = read_agent(request)

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the response. Without an answer, its text is the reason. `custom_outputs` hold the whole account."""
        outputs = answer.account(texts=True)
        if answer.text is not None:
            return _response(answer.text, "completed", outputs) | {"usage": usage(answer)}
        reason = f"No answer ({answer.status}): {answer.error}"
        error = {"code": answer.status, "message": reason}
        return _response(reason, "failed", outputs) | {"error": error, "usage": usage(answer)}

    def step(self, step: StepTrace) -> dict[str, Any]:
        """Return a step as an item of the output."""
        return step_item(step, texts=True)


def _response(text: str, status: str, outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "created_at": time.time(),
        "object": "response",
        "output": [message_item(text)],
        "status": status,
        "custom_outputs": outputs,
    }
