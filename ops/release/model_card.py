"""The texts of a version in MLflow: descriptions, licences and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ops.benchmarks.registry import BENCHMARKS, ood_benchmarks, training_benchmarks
from ops.conductor.policy import PolicyCard
from ops.config import Pool, PromptedPolicy, Recipe
from ops.core.documents import format_markdown_table
from ops.release.lineage import Lineage, describe_cost
from ops.release.version_facts import ACCURACY, COST, PAID, POOL, insert_facts
from ops.results.leaderboard import format_interval
from ops.results.measures import MEASURES
from ops.results.statistics import average_estimates
from ops.results.summary import Summary, mean_usd, summarize
from ops.results.table import Rows
from ops.serving.scope import TrainingScope

CARD_FILE = "README.md"
"""The name of the model card among the version's artifacts."""
CODE_LICENCE = "Apache-2.0"
MODEL_DESCRIPTION = (
    "A small language model that answers a question by writing a workflow for a pool of other models. "
    "The alias `champion` names the version that is served, `challenger` the version that was registered last, and "
    "`previous` the champion before the present one. `podium promote` and `podium rollback` move these aliases."
)
_NO_CURVE = "Its training was not tracked in this MLflow store."
_UNTRAINED = "It was not trained."


@dataclass(frozen=True)
class Release:
    """A version that is about to be registered, with everything that its texts describe."""

    card: PolicyCard
    pool: Pool
    rows: Rows
    lineage: Lineage
    recipe: Recipe | None = None
    seed: str = ""
    training_runs: Mapping[str, str] | None = None
    """The MLflow run of each training stage, by the stage's name."""
    fine_tuned_from: str = ""
    """The number of the version that a retraining continued; empty for any other version."""
    checkpoint: str | None = None
    """The logged model in MLflow that is the checkpoint from which the policy was made; None if the training was not
    tracked."""

    @property
    def is_synthetic(self) -> bool:
        """Return whether the problems were generated and the workers are embedded programs."""
        return self.recipe is not None and any(each.source == "embedded" for each in self.recipe.benchmarks.values())

    def describe_licence(self) -> str:
        """Return one line with the licences of the code and of the weights."""
        base = self.card.pretrained or (self.recipe.policy if self.recipe is not None else None)
        model = getattr(base, "model", None)
        weights = f"as its base model {model}" if model else "no upstream weights"
        return f"code: {CODE_LICENCE}; weights: {weights}"

    def write_summary(self) -> str:
        """Return two sentences: what the version is, and what it reaches."""
        return f"{self._describe_identity()} {self.describe_result()}"

    def _describe_identity(self) -> str:
        of = f"Recipe `{self.lineage.recipe}`, pool `{self.pool.name}` ({len(self.pool.names)} workers)"
        seed = f", seed {self.seed}" if self.seed else ""
        synthetic = "Synthetic demo. " if self.is_synthetic else ""
        if self.fine_tuned_from:
            seed += f". Fine-tuned from version {self.fine_tuned_from} after a change of the pool"
        return f"{synthetic}{of}{seed}. {self._describe_author()}".rstrip()

    def _describe_author(self) -> str:
        """What writes the workflows of an untrained policy; empty for a trained one."""
        policy = self.card.untrained
        if isinstance(policy, PromptedPolicy):
            return f"Not trained: worker {policy.worker} is prompted to write the workflows. "
        return "Not trained: one fixed workflow for every question. " if policy is not None else ""

    def describe_result(self) -> str:
        """Return the mean accuracies and the cost in sentences, as far as the version was scored."""
        if not (accuracy := self._describe_accuracy()):
            return "It was not scored."
        return f"Accuracy (95 % interval): {accuracy}. The workers cost ${mean_usd(self.rows):.5f} for each question."

    def _describe_accuracy(self) -> str:
        summaries = summarize(self.rows)
        said = []
        for label, names in (("in-domain", training_benchmarks()), ("out-of-distribution", ood_benchmarks())):
            scored = [summaries[name].accuracy for name in names if name in summaries]
            if scored:
                mean = average_estimates(scored)
                said.append(f"{100 * mean.mean:.1f} % {label} ({format_interval(mean)})")
        return ", ".join(said)

    def write_description(self, experiment_of: Mapping[str, str]) -> str:
        """Return the description of the version in Markdown. `experiment_of` maps a training run or a checkpoint to its
        experiment, for links."""
        runs = self.training_runs or {}
        links = [f"[{stage}](#/experiments/{experiment_of[run]}/runs/{run})" for stage, run in runs.items()]
        trained = f"Training: {', '.join(links)}." if links else _UNTRAINED if self.card.untrained else _NO_CURVE
        if self.checkpoint:
            at = f"#/experiments/{experiment_of[self.checkpoint]}/models/{self.checkpoint}"
            trained += f" Checkpoint: [{self.checkpoint}]({at})."
        scores = _scores_table(summaries) if (summaries := summarize(self.rows)) else "It was not scored."
        files = f"The model card is `{CARD_FILE}` among the artifacts."
        return insert_facts(f"{self._describe_identity()}\n\n{scores}\n\n{trained} {files}", self._list_facts())

    def _list_facts(self) -> dict[str, str]:
        workers = f"`{self.pool.name}`, {len(self.pool.names)} workers: {', '.join(self.pool.names)}"
        made = {PAID: describe_cost(self.lineage.as_tags())}
        if not (accuracy := self._describe_accuracy()):
            return {POOL: workers} | made
        cost = f"${mean_usd(self.rows):.5f} a question for the calls of its workers"
        return {ACCURACY: f"{accuracy}; 95 % intervals", COST: cost, POOL: workers} | made

    def write_model_card(self, scope: TrainingScope | None) -> str:
        """Return the model card in Markdown. `scope` decides whether a question lies outside of the training; None if
        the version cannot tell."""
        summaries = summarize(self.rows)
        benchmark_licences = _describe_benchmark_licences(summaries)
        parts = [
            f"# Conductor, policy `{self.lineage.policy}`",
            MODEL_DESCRIPTION,
            self.write_summary(),
            "## Use",
            USAGE,
            "## Scores",
            _scores_table(summaries) if summaries else "It was not scored.",
            _READING,
            "## Workers",
            _workers_table(self.card, self.pool),
            "## Where it came from",
            _describe_origin(self),
            "## Limits",
            f"{_LIMITS} {self._describe_notices(scope)}{_SYNTHETIC if self.is_synthetic else ''}",
            "## Licence",
            f"{self.describe_licence()}. The benchmarks have licences of their own: {benchmark_licences}.",
        ]
        return "\n\n".join(parts) + "\n"

    def _describe_notices(self, scope: TrainingScope | None) -> str:
        """Whether it says that a question lies outside of its training, and if not, why."""
        if scope is not None:
            return (
                f"If less than {scope.min_known_share:.0%} of a question's pairs of neighbouring words occur in its "
                "training questions, the response says in `notice` that the question lies outside of its training."
            )
        if self.card.untrained is not None:
            return "It was not trained, so it never says that a question lies outside of its training."
        if self.card.pretrained is not None:
            return (
                "It never says that a question lies outside of its training, because its base model has read far more "
                "than the training questions."
            )
        return "It never says that a question lies outside of its training, because this was not measured."


USAGE = """\
```
pip install -r requirements.txt
export MLFLOW_DISABLE_TELEMETRY=true
mlflow models serve --model-uri . --env-manager local --port 5001
curl http://127.0.0.1:5001/invocations -H 'content-type: application/json' \\
  -d '{"input": [{"role": "user", "content": "What is 6 * 7?"}]}'
```

The answer, 42, is the last text of `output`.

The workers are called at their providers. `artifacts/pool.yaml` names the environment variables that must hold the API
keys. Stored responses and the ledger are kept in the folder `.podium` of this folder, or of the folder `PODIUM_ROOT` if
that variable is set. The field `custom_inputs` holds the options of a request, such as its budget, its deadline and the
workers that it may ask. The field `custom_outputs` holds the workflow with its steps, their tokens and their cost."""
_READING = (
    "Each row is one benchmark. Tokens, calls, USD and latency are those of the workers for one question. In means "
    "over benchmarks, every benchmark has the same weight."
)
_LIMITS = (
    "It was measured on single questions with one right answer, and not on conversations. It sends questions to the "
    "workers of its pool. A wrong response of one worker can mislead the next one."
)
_SYNTHETIC = (
    " The questions were generated and the workers are small programs, so these scores say nothing about real models."
)


def _scores_table(summaries: Mapping[str, Summary]) -> str:
    head = ["benchmark", "questions", "accuracy, % (95 % interval)", "valid workflows, %", "steps"]
    head += [measure.head for measure in MEASURES]
    rows = [
        (
            name,
            each.rows,
            f"{100 * each.accuracy.mean:.1f} ({format_interval(each.accuracy)})",
            f"{100 * each.format_compliance:.1f}",
            f"{each.steps:.2f}",
            *(measure.format(each.values[measure.name]) for measure in MEASURES),
        )
        for name, each in summaries.items()
    ]
    return format_markdown_table(head, rows)


def _workers_table(card: PolicyCard, pool: Pool) -> str:
    rows = [
        (ordinal, name, f"`{pool.worker(name).model}`" if name in pool.names else "not in the pool")
        for ordinal, name in enumerate(card.offered)
    ]
    return format_markdown_table(("ordinal", "worker", "model"), rows)


def _describe_origin(release: Release) -> str:
    facts = dict(release.lineage.as_tags())
    rows = [*facts.items(), *([("seed", release.seed)] if release.seed else [])]
    rows += [(f"training run ({stage})", run) for stage, run in (release.training_runs or {}).items()]
    return format_markdown_table(("what", "value"), [(name, f"`{value}`") for name, value in rows])


def _describe_benchmark_licences(summaries: Mapping[str, Summary]) -> str:
    return "; ".join(f"{name}: {BENCHMARKS[name].licence}" for name in summaries) or "none were used"
