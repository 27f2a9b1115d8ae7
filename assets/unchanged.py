"""What is unchanged is not done again: an asset or a check whose inputs equal those of its last result returns at once.

Dagster's last materialization holds the keys of the inputs and outputs as metadata; the outputs on disk must still have
their key. A run with the tag `podium/again`, and a run about a change of the champion's pool, do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg

from assets import metadata, partitions
from assets.resources import Podium
from ops import versioning
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.stages.inputs import files_key, inputs_key
from ops.workers.client import Counts

AGAIN = "podium/again"
"""Run tag: with any value, every step of the run is done."""
INPUTS, OUTPUTS, UNCHANGED = "inputs_key", "outputs_key", "unchanged"
"""Metadata of a materialization: the two keys, and the run that did the work."""
_DATA_VERSION = "dagster/data_version"
_PLANNED = 20
"""The most records of a check that were planned, by runs that ended before it, and have no result."""


BEFORE = {
    "raw_problems": (),
    "shortlist": ("raw_problems",),
    "worker_responses": ("raw_problems", "shortlist"),
    "worker_profiles": ("raw_problems", "shortlist", "worker_responses"),
    "training_mix": ("raw_problems", "shortlist", "worker_responses"),
}
"""Data stage → the stages whose files it may read."""


def data_files(workspace: Workspace, *stages: str) -> list[Path]:
    """Return the files and folders that these data stages write; without a stage, those of all."""
    data = workspace.data
    written = {
        "raw_problems": [data / "raw"],
        "shortlist": [data / "shortlist.jsonl", data / "contamination.json"],
        "worker_responses": [data / "responses"],
        "worker_profiles": [data / "profiles.json", workspace.state / "accuracy_against_cost.png"],
        "training_mix": [data / "training_mix.jsonl", data / "data_card.md"],
    }
    return [path for stage in stages or BEFORE for path in written[stage]]


@dataclass(frozen=True)
class AssetStep:
    """One materialization of an asset from `inputs` into `outputs`.

    `benchmarks`: those of a partitioned asset; `stage`: the stage of dvc.yaml whose version the asset has; `also`:
    further inputs that are no files.
    """

    context: dg.AssetExecutionContext
    podium: Podium
    inputs: Sequence[Path]
    outputs: Sequence[Path]
    benchmarks: Sequence[str] = ()
    stage: str = ""
    also: Sequence[str] = ()

    @classmethod
    def of_data(
        cls, context: dg.AssetExecutionContext, podium: Podium, stage: str, benchmarks: Sequence[str] = ()
    ) -> AssetStep:
        """Return the step of a data stage; each also writes the settings of the recorded data."""
        workspace, before = podium.workspace(), BEFORE[stage]
        outputs = [*data_files(workspace, stage), versioning.settings_file(workspace)]
        return cls(context, podium, data_files(workspace, *before) if before else [], outputs, benchmarks, stage)

    @cached_property
    def key(self) -> str:
        """A hash of everything that the asset depends on, taken when the step begins."""
        key = inputs_key(self.podium.workspace(), self.podium.snapshot(), self.inputs)
        return _with(key, [*self.benchmarks, *self.also])

    def unchanged(self) -> dg.MaterializeResult | None:
        """Return the last result, with its metadata, if this step would do the same again; None if it is to be done."""
        key, last = self.key, self._last()
        if _everything(self.context.run, self.podium) or not last:
            return None
        outputs = files_key(self.podium.workspace(), self.outputs)
        for made, _ in last.values():
            if (_text(made.metadata, INPUTS), _text(made.metadata, OUTPUTS)) != (key, outputs):
                return None
        version = next(made.tags or {} for made, _ in last.values()).get(_DATA_VERSION)
        if self.stage and version != self._recorded():
            return None
        facts: dict[str, Any] = {}
        for partition, (made, run_id) in last.items():
            facts = _again(made.metadata, run_id)
            if partition:
                self.context.add_asset_metadata(facts, partition_key=partition)
        self.context.log.info(f"unchanged {_text(facts, UNCHANGED)}")
        if self.benchmarks:
            partitions.in_recipe(self.context, self.podium.load().recipe)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(version) if version and self.stage else None,
            metadata={} if self.benchmarks else facts,
        )

    def keys(self, whole: bool = True) -> dict[str, str]:
        """Return metadata for the result that is made now; none unless it is `whole`, so that the next run
        completes it."""
        if not whole:
            return {}
        return {INPUTS: self.key, OUTPUTS: files_key(self.podium.workspace(), self.outputs)}

    def _last(self) -> Mapping[str, tuple[dg.AssetMaterialization, str]]:
        """Return partition ("" without partitions) → its last materialization and that one's run; empty if any is
        missing."""
        found = {}
        for partition in self.benchmarks or ("",):
            chosen = dg.AssetRecordsFilter(self.context.asset_key, asset_partitions=[partition] if partition else None)
            records = self.context.instance.fetch_materializations(chosen, limit=1).records
            if not records or records[0].asset_materialization is None:
                return {}
            found[partition] = records[0].asset_materialization, records[0].run_id
        return found

    def _recorded(self) -> str:
        """Return the version of the stage's output that is recorded now; "" if there is none, or DVC lacks it."""
        workspace = self.podium.workspace()
        try:
            if versioning.has_dvc(workspace):
                kept = versioning.is_stored(workspace, self.stage)
                return versioning.version(workspace, self.stage) if kept else ""
            return versioning.unrecorded(workspace, self.stage)
        except DataError:
            return ""


def checked(
    context: dg.AssetCheckExecutionContext,
    podium: Podium,
    inputs: Sequence[Path],
    benchmarks: Sequence[str],
    check: Callable[[], dg.AssetCheckResult],
) -> dg.AssetCheckResult:
    """Return the last result of this asset check if it passed on the same inputs, else that of `check`."""
    [name] = context.selected_asset_check_keys
    key = _with(inputs_key(podium.workspace(), podium.snapshot(), inputs), benchmarks)
    records = context.instance.event_log_storage.get_asset_check_execution_history(name, limit=_PLANNED + 1)
    results = [(record.evaluation, record.run_id) for record in records]
    last, run_id = next((known for known in results if isinstance(known[0], dg.AssetCheckEvaluation)), (None, ""))
    if isinstance(last, dg.AssetCheckEvaluation) and last.passed and not _everything(context.run, podium):
        page = _text(last.metadata, "data_docs")
        if _text(last.metadata, INPUTS) == key and (not page or Path(page).exists()):
            return dg.AssetCheckResult(
                passed=True,
                severity=last.severity,
                description=last.description,
                metadata=_again(last.metadata, run_id),
            )
    made = check()
    return dg.AssetCheckResult(
        passed=made.passed,
        severity=made.severity,
        description=made.description,
        metadata={**(made.metadata or {}), INPUTS: key},
    )


def _with(key: str, benchmarks: Sequence[str]) -> str:
    return " ".join([key, *benchmarks])


def _everything(run: dg.DagsterRun, podium: Podium) -> bool:
    return AGAIN in run.tags or podium.snapshot().change is not None


def _text(facts: Mapping[str, Any], name: str) -> str:
    return str(getattr(facts.get(name, ""), "value", facts.get(name, "")))


def _again(facts: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    since = _text(facts, UNCHANGED) or f"since run {run_id[:8]}"
    kept = {name: fact for name, fact in facts.items() if not name.startswith("dagster")}
    none = metadata.calls(Counts())  # those of the run that did the work are not this run's
    return kept | {name: fact for name, fact in none.items() if name in kept} | {UNCHANGED: since}
