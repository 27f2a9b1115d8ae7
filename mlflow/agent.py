"""The serving agent: MLflow loads this file by path (models-from-code), from wherever the model lies.

`ops` travels inside the model.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from threading import Lock
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc import ResponsesAgent
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse, ResponsesAgentStreamEvent


class ConductorAgent(ResponsesAgent):
    """Answers the last user message by a workflow over the pool.

    `custom_inputs` are `ops.serving.request_options.RequestOptions`: form of the answer, choices, budget, deadline,
    workers …
    `custom_outputs` tell the workflow, every step, tokens and USD.
    """

    def load_context(self, context: Any) -> None:
        """Remember where policy and pool lie; they are loaded at the first question."""
        self._places = {name: Path(context.artifacts[name]) for name in ("policy", "pool")}
        self._settings = dict(context.model_config or {})
        self._engine: Any = None
        self._lock = Lock()

    def predict(self, request: ResponsesAgentRequest) -> ResponsesAgentResponse:
        """Answer one question. Raises the errors of `ops.serving`, whose texts say what to do."""
        exchange = self._exchange(request)
        answer = self._loaded().ask(exchange.problem, exchange.options)
        _show(answer)
        return ResponsesAgentResponse(**exchange.whole(answer))

    def predict_stream(self, request: ResponsesAgentRequest) -> Generator[ResponsesAgentStreamEvent, None, None]:
        """The steps as they end, then the answer. Raises as `predict` does."""
        exchange, place = self._exchange(request), 0
        from ops.serving.answer import Answer
        from ops.workflow.trace import StepTrace

        for news in self._loaded().stream(exchange.problem, exchange.options):
            if isinstance(news, StepTrace):
                yield _done(place, exchange.step(news))
                place += 1
            elif isinstance(news, Answer):
                _show(news)
                whole = exchange.whole(news)
                yield _done(place, whole["output"][-1], whole["custom_outputs"])

    def _exchange(self, request: ResponsesAgentRequest) -> Any:
        from ops.serving.openai.agent import Exchange

        return Exchange(request.model_dump())

    def _loaded(self) -> Any:
        from ops.config import Serving
        from ops.serving.in_thread import EngineThread
        from ops.serving.loaded import VersionFiles

        with self._lock:
            if self._engine is None:
                settings = Serving(budget_usd=float(self._settings.get("question_usd", 1.0)))
                version = str(self._settings.get("policy", ""))
                files = VersionFiles(version, self._places["policy"], self._places["pool"], self._settings)
                self._engine = EngineThread.load(files, self._workspace(), settings)
        return self._engine

    def _workspace(self) -> Any:
        # The response cache of the checkout that released the model, where it is at hand.
        import os

        from ops.core.workspace import Workspace

        root = Path(os.environ.get("PODIUM_ROOT") or self._settings.get("root") or "")
        return Workspace(root if (root / "config").is_dir() else Path.home() / ".cache" / "podium")


def _done(place: int, item: dict[str, Any], outputs: dict[str, Any] | None = None) -> ResponsesAgentStreamEvent:
    return ResponsesAgentStreamEvent(
        type="response.output_item.done", output_index=place, item=item, custom_outputs=outputs
    )


def _show(answer: Any) -> None:
    """The steps as spans below the span that MLflow opens for a request, where it does."""
    import mlflow

    from ops.release.tracing import export

    if (request := mlflow.get_current_active_span()) is not None:
        for run in answer.runs:
            export(run, "workflow", parent=request)


set_model(ConductorAgent())
