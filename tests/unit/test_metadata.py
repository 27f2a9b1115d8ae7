"""Metadata of assets: tables that the UI draws, with readable figures."""

from __future__ import annotations

import dagster as dg
import pytest

from assets import metadata
from ops.precaching.profiles import Score


def test_a_table_is_dagsters_own_with_typed_columns() -> None:
    shown = metadata.table(("worker", "calls", "USD", "note"), [("a", 3, 0.5, None), ("b", 4, 1, "|x|")])
    assert isinstance(shown, dg.TableMetadataValue)
    assert [(column.name, column.type) for column in shown.schema.columns] == [
        ("worker", "string"),
        ("calls", "int"),
        ("USD", "float"),
        ("note", "string"),
    ]
    assert [dict(record.data) for record in shown.records] == [
        {"worker": "a", "calls": 3, "USD": 0.5, "note": "–"},
        {"worker": "b", "calls": 4, "USD": 1, "note": "|x|"},
    ]


def test_a_table_without_rows_still_names_its_columns() -> None:
    shown = metadata.table(("kind", "count"), [])
    assert [column.name for column in shown.schema.columns] == ["kind", "count"]
    assert list(shown.records) == []


def test_a_row_that_does_not_fit_its_head_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        metadata.table(("kind", "count"), [("near",)])


def test_an_accuracy_is_never_without_its_error() -> None:
    assert metadata.percent(Score(100, 0.71, 0.0454)) == "71.0\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}4.5"
    assert metadata.percent(None) == "–"


def test_missing_measurements_are_dashes_among_rounded_figures() -> None:
    facts = {"usd": 0.123456789, "mean_steps": float("nan"), "patterns": 3}
    assert metadata.rounded(facts) == {"usd": 0.123457, "mean_steps": "–", "patterns": 3}
