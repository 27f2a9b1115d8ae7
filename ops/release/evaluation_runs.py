"""Show an evaluation in MLflow's view of evaluation runs: its metrics, its data sets, and a sample of graded traces.

The run is of the type that `mlflow.genai.evaluate` makes. That function is not used here, because it would answer and
grade the questions once more, and its metrics would be means over the sample instead of over all questions.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ops.benchmarks.problem_files import questions_key
from ops.benchmarks.registry import is_confidential
from ops.core.errors import first_line
from ops.core.installation import require_mlflow
from ops.core.mlflow_runs import PURPOSE_TAG, Purpose, name_run
from ops.release.mlflow_store import RUN_SOURCE, connect, get_or_create_experiment
from ops.release.tracing import TaggedTrace, build_execution_tree, store_traces
from ops.results.summary import summarize
from ops.results.table import Rows
from ops.workflow.trace import QuestionTrace

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from ops.config import Setup
    from ops.core.problem import Problem
    from ops.results.outcome_rows import OutcomeRow

log = logging.getLogger(__name__)
WRITTEN_AGAINST = {"mlflow": "3.17.2"}
"""The MLflow version whose tag and metadata names this module uses: the two below."""
_RUN_TYPE, _EVALUATION = "mlflow.runType", "genai_evaluate"
"""The tag, and its value, by which MLflow lists a run among the evaluation runs (mlflow.utils.mlflow_tags)."""
_SOURCE_RUN = "mlflow.assessment.sourceRunId"
"""The metadata that names the run of an assessment (mlflow.tracing.constant)."""
_SHOWN_METRICS = ("/accuracy", "/usd", "/latency_s", "/format_compliance")
"""The metrics of an evaluation run, each of which is a column in MLflow. The run of a version has all metrics."""
_MAX_LINKS = 100
"""The number of traces that MLflow links with a run in one call."""


class TraceSample:
    """Collects the first executions of every benchmark during an evaluation, up to a fixed number each, and stores them
    at its end."""

    def __init__(self, per_benchmark: int) -> None:
        self._per_benchmark = per_benchmark
        self._kept: list[tuple[OutcomeRow, QuestionTrace]] = []
        self._recorded: Counter[str] = Counter()

    def record(self, rows: Sequence[OutcomeRow], traces: Sequence[QuestionTrace]) -> None:
        """Receive executed questions and their traces from the evaluation."""
        for row, trace in zip(rows, traces, strict=True):
            if trace.executions and self._recorded[row.benchmark] < self._per_benchmark:
                self._recorded[row.benchmark] += 1
                self._kept.append((row, trace))

    def export(
        self, setup: Setup, system: str, policy: str, questions: Mapping[str, Sequence[Problem]], rows: Rows
    ) -> list[str]:
        """Write an evaluation run with the collected executions into the workspace's MLflow store, and return the ids
        of the traces.

        The run's metrics are those of all `rows`. The traces of a confidential benchmark say why they have no texts. If
        MLflow does not accept the run, a warning is logged and nothing is raised, because the scores, which cost money,
        are complete without it.
        """
        if not self._kept:
            return []
        require_mlflow()
        from mlflow.exceptions import MlflowException

        try:
            with connect(setup.workspace) as client:
                return self._export(client, setup, (system, policy), questions, rows)
        except (MlflowException, OSError) as error:  # requests' errors are OSErrors
            log.warning("MLflow took no traces of %s (%s); the scores are complete", system, first_line(error))
            return []

    def _export(
        self,
        client: MlflowClient,
        setup: Setup,
        scored: tuple[str, str],
        questions: Mapping[str, Sequence[Problem]],
        rows: Rows,
    ) -> list[str]:
        home = get_or_create_experiment(client, setup.workspace)
        traces = [_build_trace(row, trace, scored[0]) for row, trace in self._kept]
        ids = store_traces(setup.workspace.mlflow_uri, home, traces)
        run = _create_run(client, home, setup, scored, questions, rows)
        for start in range(0, len(ids), _MAX_LINKS):
            client.link_traces_to_run(ids[start : start + _MAX_LINKS], run)
        for trace_id, (row, _) in zip(ids, self._kept, strict=True):
            _log_grade(trace_id, row, run)
        client.set_terminated(run)
        return ids


def _build_trace(row: OutcomeRow, trace: QuestionTrace, system: str) -> TaggedTrace:
    reason = f"The authors of {row.benchmark} ask that its questions are not published."
    withheld = reason if is_confidential(row.benchmark) else ""
    tags = {
        "benchmark": row.benchmark,
        "problem": row.problem_key,
        "system": system,
        "outcome": row.outcome,
        "trace": row.trace,
        "shape": row.shape,
    }
    return TaggedTrace(build_execution_tree(trace, row.problem_key, withheld=withheld), tags)


def _create_run(
    client: MlflowClient,
    home: str,
    setup: Setup,
    scored: tuple[str, str],
    questions: Mapping[str, Sequence[Problem]],
    rows: Rows,
) -> str:
    """Create the evaluation run of (system, policy) with its data sets and metrics, and return its id."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric

    from ops.release.new_version import compute_metrics

    system, policy = scored
    purpose: Purpose = "study" if setup.account and not setup.is_retraining else "evaluation"
    about = (
        f"Evaluation of `{system}` on {', '.join(questions)}: recipe `{setup.recipe.name}`, pool `{setup.pool.name}`. "
        f"The metrics are those of all {sum(each.rows for each in summarize(rows).values()):,} answers. The traces are "
        f"a sample of {setup.recipe.execution.traces} for each benchmark (setting `execution.traces`)."
    )
    tags = {
        PURPOSE_TAG: purpose,
        _RUN_TYPE: _EVALUATION,
        "mlflow.note.content": about,
        "mlflow.source.name": RUN_SOURCE,
        "mlflow.source.type": "PROJECT",
        "system": system,
        "policy": policy,
        "recipe": setup.recipe.name,
        "seed": str(setup.recipe.seed),
        "pool": setup.pool.name,
        "pool_answers_key": setup.pool.answers_key,
    }
    run = str(client.create_run(home, run_name=name_run(purpose, system, policy), tags=tags).info.run_id)
    source = json.dumps({"tags": {"mlflow.source.name": RUN_SOURCE}})
    context = InputTag("mlflow.data.context", "evaluation")
    data = [
        DatasetInput(Dataset(name, questions_key(own), "code", source), [context]) for name, own in questions.items()
    ]
    client.log_inputs(run, datasets=data)
    now, known = time.time_ns() // 1_000_000, compute_metrics(rows).items()
    client.log_batch(run, [Metric(name, value, now, 0) for name, value in known if name.endswith(_SHOWN_METRICS)])
    return run


def _log_grade(trace_id: str, row: OutcomeRow, run: str) -> None:
    """Add to a trace whether its answer is right, and what it cost and took."""
    import mlflow
    from mlflow.entities import AssessmentSource

    source = AssessmentSource("CODE", f"podium, grader of {row.benchmark}")
    facts: dict[str, bool | float | str] = {
        "right": "unscorable" if row.unscorable else bool(row.correct), "usd": row.cost_usd, "seconds": row.latency_s,
    }  # fmt: skip
    for name, value in facts.items():
        mlflow.log_feedback(trace_id=trace_id, name=name, value=value, source=source, metadata={_SOURCE_RUN: run})
