"""The report as one asset: its page, its exhibits as metadata, and missing parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from assets import report as module
from assets.report import gather_run_evidence, report
from assets.resources import RunResource
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.reports.evidence import Evidence
from ops.reports.exhibit import EXHIBITS, make_exhibit, report_file


@pytest.fixture
def podium(project: Workspace) -> RunResource:
    return RunResource(root=str(project.root))


def test_the_page_is_written_and_its_exhibits_are_metadata(
    podium: RunResource, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gather_run_evidence", lambda _: replace(evidence, curves={}))
    monkeypatch.setattr(module, "_compute_key", lambda podium: {"of": "a test"})
    monkeypatch.setattr(module, "get_page_file", lambda podium: report_file(podium.find_workspace(), evidence.run))
    chosen = ("worker_use", "training", "steps")
    monkeypatch.setattr(module, "make_exhibits", lambda given: [make_exhibit(EXHIBITS[name], given) for name in chosen])
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize([report], instance=instance, resources={"podium": podium})
    [event] = done.get_asset_materialization_events()
    facts = {key: value.value for key, value in event.materialization.metadata.items()}
    assert facts["label"] == "synthetic"
    assert str(facts["worker_use_picture_1"]).startswith("![Worker use by domain](data:image/png;base64,")
    assert {"worker_use", "worker_use_table_2", "steps", "steps_picture_1"} <= set(facts)
    assert facts["training"] == "not run: podium train quickstart --seed 1"
    assert facts["mlflow_versions"] == "none"
    page = Path(str(facts["page"]))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and '<section id="steps" ' in text
    assert "steps-1.png" in {file.name for file in page.with_suffix("").iterdir()}


def test_without_a_mix_there_is_nothing_to_report(podium: RunResource) -> None:
    with pytest.raises(DataError, match="nothing was trained"):
        gather_run_evidence(podium)
