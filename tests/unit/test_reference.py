"""The descriptions from which the pages of docs/reference are generated."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from ops.alerts.catalogue import CATALOGUE
from ops.evaluation.baseline import BASELINES, WorkflowBaseline
from tests.bench.reference import FILES, models_of


def settings(model: type[BaseModel], known: set[type[BaseModel]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each section and setting of a file that are not in `known`."""
    known.add(model)
    yield model.__name__, (model.__doc__ or "").partition("\n\n")[0]
    for name, field in model.model_fields.items():
        if field.repr:
            yield f"{model.__name__}.{name}", field.description or ""
        for below in models_of(field.annotation):
            if below not in known:
                yield from settings(below, known)


SETTINGS = {name: said for model in FILES.values() for name, said in settings(model, set())}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_described_by_a_sentence(name: str) -> None:
    said = SETTINGS[name]
    assert re.match(r"[A-Z].*\.$", said, re.DOTALL), said or "has no description"
    assert " None" not in said, "a file says null, or does not set it"


def test_alerts_and_baselines_are_described_by_sentences() -> None:
    texts = [f"{alert.state}." for alert in CATALOGUE.values()]
    texts += [entry.differences for entry in BASELINES.values() if isinstance(entry, WorkflowBaseline)]
    for text in texts:
        assert re.match(r"[A-Z].* .*[^.]\.$", text), text
        assert ";" not in text, text
