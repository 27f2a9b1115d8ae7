"""Tables that commands write into pages of docs/: between their marks, or nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.core.errors import DataError
from pipelines.baselines import registry_table
from pipelines.pages import write_between

ROOT = Path(__file__).parents[2]
MARK = "<!-- made by `make it` -->"


def test_only_what_stands_between_the_marks_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{MARK}\n\nold\n\n{MARK}\n\nafter\n", encoding="utf-8")
    for _ in range(2):
        write_between(page, MARK, "| new |\n")
        assert page.read_text(encoding="utf-8") == f"# Before\n\n{MARK}\n\n| new |\n\n{MARK}\n\nafter\n"


@pytest.mark.parametrize("text", ["", MARK, MARK * 3])
def test_a_page_without_its_two_marks_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="twice"):
        write_between(page, MARK, "new")
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("results", "make seeds"),
        ("results", "make ablations"),
        ("results", "podium depths"),
        ("results", "make pretrained"),
        ("results", "make real-rows"),
        ("training", "podium subsets"),
        ("evaluation", "podium baselines"),
        ("evaluation", "podium baselines --score reproduction"),
        ("quality", "make gold"),
        ("curation", "make selectors"),
        ("planning", "make plans"),
        ("plans", "make plans"),
        ("precaching", "python -m tests.bench.outcomes"),
    ],
)
def test_the_pages_have_the_marks_that_their_commands_look_for(page: str, command: str) -> None:
    assert (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").count(f"<!-- made by `{command}` -->") == 2


def test_the_page_of_the_evaluation_tells_of_the_baselines_that_there_are() -> None:
    """Where it fails: `podium baselines`."""
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert page.split("<!-- made by `podium baselines` -->")[1].strip() == registry_table().strip()
