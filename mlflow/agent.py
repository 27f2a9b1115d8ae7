"""The serving agent: MLflow loads this file by path (models-from-code), from wherever the model lies.

`ops` travels inside the model.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from threading import Lock
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc import ResponsesAgent
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse


class ConductorAgent(ResponsesAgent):
    """Answers the last user message by a workflow over the pool.

    `custom_inputs` may hold `grader` ("text", "math", "choice", "code"), `choices`
    (a list of texts) and `execute` (False: write the workflow, ask no worker).
    `custom_outputs` tell the workflow, every step, tokens and USD.
    """

    def load_context(self, context: Any) -> None:
        """Remember where policy and pool lie; they are loaded at the first question."""
        self._policy = Path(context.artifacts["policy"])
        self._pool = Path(context.artifacts["pool"])
        self._settings = dict(context.model_config or {})
        self._service: Any = None
        self._lock = Lock()

    def predict(self, request: ResponsesAgentRequest) -> ResponsesAgentResponse:
        """Answer one question. Raises the errors of `ops.release.serving`, whose texts say what to do."""
        from ops.release.serving import NoWorkflowError, question

        inputs = request.custom_inputs or {}
        problem = question(_last_question(request), inputs)
        try:
            written = self._loaded().write(problem)
        except NoWorkflowError as error:
            return _response(str(error), "failed", {"status": "no_workflow", "workflow": ""})
        if inputs.get("execute") is False:
            return _response(written.text, "completed", {"status": "not_run", "workflow": written.text})
        served = self._loaded().execute(written, cap_usd=float(self._settings.get("question_usd", 1.0)))
        _show(served)
        answer = served.trace.answer
        if answer is None:
            return _response(f"No answer ({served.trace.status}): {served.trace.error}", "failed", served.as_outputs())
        return _response(answer, "completed", served.as_outputs())

    def _loaded(self) -> Any:
        from ops.release.serving import Service

        with self._lock:
            if self._service is None:
                self._service = Service.load(self._policy, self._pool, self._workspace(), self._settings.get("policy"))
        return self._service

    def _workspace(self) -> Any:
        # The response cache of the checkout that released the model, where it is at hand.
        import os

        from ops.core.workspace import Workspace

        root = Path(os.environ.get("PODIUM_ROOT") or self._settings.get("root") or "")
        return Workspace(root if (root / "config").is_dir() else Path.home() / ".cache" / "podium")


def _show(served: Any) -> None:
    """The steps as spans below the span that MLflow opens for a request, where it does."""
    import mlflow

    from ops.release.tracing import export

    if (request := mlflow.get_current_active_span()) is not None:
        export(served.trace, "workflow", parent=request)


def _last_question(request: ResponsesAgentRequest) -> str:
    for item in reversed(request.input):
        message = item.model_dump()
        if message.get("role") == "user":
            content = message.get("content") or ""
            if isinstance(content, str):
                return content
            return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return ""


def _response(text: str, status: str, outputs: dict[str, Any]) -> ResponsesAgentResponse:
    item = ResponsesAgent.create_text_output_item(text, f"msg_{uuid.uuid4().hex}")
    tokens = {
        "input_tokens": outputs.get("prompt_tokens", 0),
        "output_tokens": outputs.get("completion_tokens", 0),
    }
    usage = {
        **tokens,
        "total_tokens": sum(tokens.values()),
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return ResponsesAgentResponse(output=[item], status=status, usage=usage, custom_outputs=outputs)


set_model(ConductorAgent())
