"""The serving agent: MLflow loads this file by path (models-from-code), from wherever the model lies.

`ops` travels inside the model.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc import ResponsesAgent
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse, ResponsesAgentStreamEvent


class ConductorAgent(ResponsesAgent):
    """Answers the last user message by a workflow over the pool.

    `custom_inputs` are the options of `ops.serving.request_options`: form of the answer, choices, budget, deadline,
    workers … `custom_outputs` hold the workflow, every step, tokens and USD.
    """

    def load_context(self, context: Any) -> None:
        """Load policy and pool: a server whose model is loaded can answer.

        Raises `PodiumError` where a library is missing, `DataError` and `ConfigError` for files that cannot be used.
        """
        from ops.config import Serving
        from ops.release.requirements import REQUIREMENTS_FILE, check_requirements_installed
        from ops.serving.in_thread import EngineThread
        from ops.serving.loaded_version import VersionFiles

        settings = dict(context.model_config or {})
        policy, pool = (Path(context.artifacts[name]) for name in ("policy", "pool"))
        folder = model_folder(policy)
        if (file := folder / REQUIREMENTS_FILE).is_file():
            check_requirements_installed(file)
        files = VersionFiles(str(settings.get("policy", "")), policy, pool, settings)
        serving = Serving(budget_usd=float(settings.get("question_usd", 1.0)))
        self._engine = EngineThread.from_files(files, workspace_of(folder), serving)
        weakref.finalize(self, self._engine.close)

    def predict(self, request: ResponsesAgentRequest) -> ResponsesAgentResponse:
        """Answer one question. Raises the errors of `ops.serving`, whose texts say what to do."""
        exchange = self._exchange(request)
        answer = self._engine.answer_question(exchange.problem, exchange.options)
        _attach(answer)
        return ResponsesAgentResponse(**exchange.write_response(answer))

    def predict_stream(self, request: ResponsesAgentRequest) -> Generator[ResponsesAgentStreamEvent, None, None]:
        """The steps as they end, then the answer. Raises as `predict` does."""
        exchange, place = self._exchange(request), 0
        from ops.serving.answer import Answer
        from ops.workflow.trace import StepTrace

        for news in self._engine.stream_answer(exchange.problem, exchange.options):
            if isinstance(news, StepTrace):
                yield _done(place, exchange.write_step(news))
                place += 1
            elif isinstance(news, Answer):
                _attach(news)
                whole = exchange.write_response(news)
                yield _done(place, whole["output"][-1], whole["custom_outputs"])

    def _exchange(self, request: ResponsesAgentRequest) -> Any:
        from ops.serving.openai.agent import AgentExchange

        return AgentExchange(request.model_dump())


def model_folder(policy: Path) -> Path:
    """The folder of the model that has this policy: that of MLmodel, or before it is logged the policy's own."""
    return next((folder for folder in policy.parents if (folder / "MLmodel").is_file()), policy.parent)


def workspace_of(folder: Path) -> Any:
    """Where response cache and ledger lie: in `$PODIUM_ROOT`; in the checkout whose store holds the model; else in
    the model's own folder. Never in a place that was noted when the model was made."""
    from ops.core.workspace import Workspace

    if root := os.environ.get("PODIUM_ROOT"):
        return Workspace(Path(root).resolve())
    holders = (Workspace(each) for each in folder.resolve().parents if (each / "dvc.yaml").is_file())
    here = (each for each in holders if folder.resolve().is_relative_to(each.mlflow_artifacts))
    return next(here, Workspace(folder))


def _done(place: int, item: dict[str, Any], outputs: dict[str, Any] | None = None) -> ResponsesAgentStreamEvent:
    return ResponsesAgentStreamEvent(
        type="response.output_item.done", output_index=place, item=item, custom_outputs=outputs
    )


def _attach(answer: Any) -> None:
    """Add what was done to the trace that MLflow has open for the request, if it has one."""
    import mlflow

    from ops.release.tracing import attach_to_span, build_answer_tree

    if (request := mlflow.get_current_active_span()) is not None:
        for part in build_answer_tree(answer, time.time()).children:
            attach_to_span(part, request)


set_model(ConductorAgent())
