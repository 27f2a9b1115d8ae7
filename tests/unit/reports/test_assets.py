"""An exhibit as an asset: its tables, its pictures, the page and what was not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from assets import reports as module
from assets.reports import asset_name, evidence_of, reports
from assets.resources import Podium
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.reports.evidence import Evidence
from ops.reports.exhibit import EXHIBITS
from ops.reports.made import make_one


def materialized(
    podium: Podium, evidence: Evidence, monkeypatch: pytest.MonkeyPatch, *names: str
) -> dict[str, dict[str, object]]:
    """Asset → its metadata, of the assets of these names, on that evidence."""
    monkeypatch.setattr(module, "evidence_of", lambda _: evidence)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [reports], instance=instance, selection=list(names), resources={"podium": podium}, raise_on_error=True
        )
    return {
        event.asset_key.to_user_string(): {key: value.value for key, value in event.materialization.metadata.items()}
        for event in done.get_asset_materialization_events()
        if event.asset_key is not None
    }


@pytest.fixture
def podium(project: Workspace) -> Podium:
    return Podium(root=str(project.root))


def test_only_what_is_chosen_is_made(podium: Podium, evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    without = replace(evidence, curves={})
    made = materialized(podium, without, monkeypatch, "report_worker_use", "report_training")
    assert set(made) == {"report_worker_use", "report_training"}
    use = made["report_worker_use"]
    assert use["label"] == "miniature"
    assert str(use["picture_1"]).startswith("![Worker use by domain](data:image/png;base64,")
    assert {"n", "table_2"} <= set(use)
    assert made["report_training"] == {"nothing_done": "not run: podium train quickstart --seed 1"}


def test_the_page_is_written_and_its_path_shown(
    podium: Podium, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "make", lambda given: [make_one(EXHIBITS["steps"], given)])
    page = materialized(podium, evidence, monkeypatch, "report_page")["report_page"]
    text = Path(str(page["page"])).read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and '<section id="steps">' in text
    assert [file.name for file in Path(str(page["page"])).with_suffix("").iterdir()] == ["steps-1.png"]
    assert page["mlflow_versions"] == "none"


def test_every_exhibit_is_an_asset_beside_the_page() -> None:
    names = {key.to_user_string() for key in reports.keys}
    assert names == {*map(asset_name, EXHIBITS.values()), "report_page"}


def test_without_a_mix_there_is_nothing_to_report(podium: Podium) -> None:
    with pytest.raises(DataError, match="nothing was trained"):
        evidence_of(podium)
