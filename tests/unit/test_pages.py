"""README and docs: generated pages are current, links resolve, figures agree, examples are valid."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml
from pydantic import BaseModel

from ops.config import Alerts, Pool, Recipe, load_recipe
from ops.core.documents import (
    MEASUREMENTS,
    Document,
    mark_slug,
    render_shown_tables,
    replace_marked_text,
)
from ops.core.errors import DataError
from ops.core.settings_files import read_yaml
from ops.evaluation.study import load_all_studies
from pipelines.commands.main import podium
from tests.bench.reference import FILES, PLANNED, models_of, pages
from tests.unit.test_architecture import OPS_LAYERS

ROOT = Path(__file__).parents[2]
MARK = "<!-- made by `make it` -->"
GENERATED = ROOT / MEASUREMENTS.parent
BY_HAND = sorted((ROOT / "docs").glob("*.md"))
OTHERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "mlflow/README.md")]
EVERY_PAGE = [*OTHERS, *BY_HAND, *sorted(GENERATED.glob("*.md"))]
FIGURES: dict[str, dict[str, Any]] = yaml.safe_load((GENERATED / "figures.yaml").read_text(encoding="utf-8"))
TAG = re.compile(r"<!--([a-z0-9_]+)-->")
"""A figure's name behind its value."""


def relative(file: Path) -> str:
    return str(file.relative_to(ROOT))


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


# ── tables between marks ─────────────────────────────────────────────────────────


def test_only_what_stands_between_the_marks_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{MARK}\n\nold\n\n{MARK}\n\nafter\n", encoding="utf-8")
    for _ in range(2):
        replace_marked_text(page, MARK, "| new |\n")
        assert page.read_text(encoding="utf-8") == f"# Before\n\n{MARK}\n\n| new |\n\n{MARK}\n\nafter\n"


@pytest.mark.parametrize("text", ["", MARK, MARK * 3])
def test_a_page_without_its_two_marks_is_unchanged(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="twice"):
        replace_marked_text(page, MARK, "new")
    assert page.read_text(encoding="utf-8") == text


def test_the_measurements_have_the_marks_that_commands_look_for() -> None:
    text = read(ROOT / MEASUREMENTS) + read(ROOT / "docs" / "serving.md")
    shown = read_yaml((ROOT / MEASUREMENTS).with_suffix("") / "shown.yaml")
    named = [f"<!-- made by `podium study {name}` -->" for name in load_all_studies(ROOT / "config")]
    for file in (ROOT / "tests" / "bench").glob("*.py"):
        named += re.findall(r'"(<!-- made by [^"]+ -->)"', read(file))
    assert len(named) > 12
    expected = {mark: 0 if shown.get(mark_slug(mark), "elsewhere") == {} else 2 for mark in named}
    assert {mark: text.count(mark) for mark in named} == expected


def read_tables(folder: Path, mark: str) -> list[list[list[str]]]:
    """Return the tables that `replace_marked_text` has written into CSV files of this folder for a marker line."""
    files = [folder / f"{mark_slug(mark)}{number}.csv" for number in ("", *(f"-{place}" for place in range(2, 100)))]
    return [list(csv.reader(read(file).splitlines())) for file in files if file.is_file()]


def test_the_measurements_show_what_their_files_hold() -> None:
    page = ROOT / MEASUREMENTS
    folder, text = page.with_suffix(""), read(page)
    shown = read_yaml(folder / "shown.yaml")
    for mark in dict.fromkeys(re.findall(r"<!-- made by .* -->", text)):
        prose = folder / f"{mark_slug(mark)}.txt"
        document = Document(read(prose).strip() if prose.exists() else "", read_tables(folder, mark))
        rendered = render_shown_tables(folder, mark, document)
        assert text.split(mark)[1].strip() == rendered, mark
        assert rendered.count("| --- |\n") == len(shown[mark_slug(mark)]["tables"]), mark  # none is left out
    assert {file.name for file in folder.iterdir()} == set(re.findall(r"\(measurements/([\w.-]+)\)", text))


def test_a_page_with_a_selection_keeps_the_rest_in_files(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "page"
    folder.mkdir()
    table = 'rows: "^b", columns: {name: its name, "3": points}, labels: {b: the second}'
    (folder / "shown.yaml").write_text(f'it: {{tables: {{"1": {{{table}}}}}}}')
    text = "One table.\n\n| name | points | points |\n| --- | --- | ---: |\n| a | 1 | 2 |\n| **b** | 3 | 4, 5 |\n"
    replace_marked_text(page, MARK, text)
    expected = "| its name | points |\n| --- | --- |\n| the second | 4, 5 |"
    assert read(page) == f"{MARK}\n\n{expected}\n\n{MARK}\n"
    assert read(folder / "it.csv") == 'name,points,points\na,1,2\nb,3,"4, 5"\n'
    (folder / "shown.yaml").write_text('it: {tables: {"2": {}}}')
    replace_marked_text(page, MARK, text)  # another recipe prints fewer tables
    assert read(page) == f"{MARK}\n\n\n\n{MARK}\n"
    (folder / "shown.yaml").write_text('it: {tables: {"1": {columns: {absent: points}}}}')
    replace_marked_text(page, MARK, text)  # a command with one seed prints another table in this place
    assert read(page) == f"{MARK}\n\n\n\n{MARK}\n"


def test_tables_that_a_page_does_not_show_are_only_written_into_files(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "page"
    folder.mkdir()
    page.write_text("no mark\n", encoding="utf-8")
    (folder / "shown.yaml").write_text("it: {}")
    assert replace_marked_text(page, MARK, "| name |\n| --- |\n| a |\n") == folder
    assert read(page) == "no mark\n"
    assert read(folder / "it.csv") == "name\na\n"


# ── generated pages ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", pages())
def test_a_generated_page_is_current(name: str) -> None:
    assert read(GENERATED / name) == pages()[name](), f"docs/reference/{name}: run `make docs`"


def test_a_shipped_cap_covers_what_its_plan_expects() -> None:
    rows = [line.split(" | ") for line in read(GENERATED / "plans.md").splitlines() if line.startswith("| `")]
    assert len(rows) == len(PLANNED)
    for row in rows:
        expected, cap = (float(cell.replace(",", "")) for cell in row[5:7])
        assert cap >= expected, row[0]


# ── links ────────────────────────────────────────────────────────────────────────


@cache
def anchors(file: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", read(file), flags=re.DOTALL), re.MULTILINE):
        text = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(text.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", EVERY_PAGE, ids=relative)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            url = urlsplit(target)
            assert "." in (url.hostname or "") or url.hostname == "localhost", f"{relative(page)}: {target}"
            assert re.fullmatch(r"[\w/.~%+@:&=,;()-]*", url.path), f"{relative(page)}: {target}"
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        assert file.exists(), f"{relative(page)}: {target}"
        assert not anchor or anchor in anchors(file), f"{relative(page)}: {target}"


def test_every_picture_has_an_alternative_text_and_a_caption() -> None:
    shown = 0
    for page in EVERY_PAGE:
        for alternative, name, after in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)(?:\]\([^)]+\))?\n\n(.*)", read(page)):
            assert len(alternative.split()) > 5, f"{relative(page)}: {name} has no text that describes it"
            assert re.match(r"\*\w|\*`", after), f"{relative(page)}: {name} has no caption in italics below it"
            shown += 1
        assert not re.search(r"<img(?![^>]+alt=)", read(page)), relative(page)
    assert shown > 5


@pytest.mark.parametrize("folder", ["ops", "assets", "pipelines", "mlflow", "config", "tests", "."])
def test_every_page_that_code_names_exists(folder: str) -> None:
    pattern = "**/*" if folder != "." else "*"
    for file in sorted((ROOT / folder).glob(pattern)):
        if file.suffix in {".py", ".yaml", ".toml", ".sql"} or file.name in {"Makefile", "Dockerfile", ".env.example"}:
            for page in re.findall(r"(?<![\w/.])docs/[\w/-]+\.(?:md|yaml|svg)", read(file)):
                assert (ROOT / page).is_file(), f"{relative(file)} names {page}"


# ── figures ──────────────────────────────────────────────────────────────────────


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("−", "-"))


def test_a_figure_is_stated_with_its_one_value() -> None:
    used = set()
    for file in EVERY_PAGE:
        text = plain(read(file))
        for tag in TAG.finditer(text):
            name = tag[1]
            assert name in FIGURES, f"{relative(file)}: no figure {name} in docs/reference/figures.yaml"
            value = FIGURES[name]["value"]
            stated = re.search(rf"(?<![\d.]){re.escape(value)}$", text[: tag.start()])
            assert stated, f"{relative(file)}: {name} is {value}"
            used.add(name)
    assert used == set(FIGURES), "a figure that no page states"


@pytest.mark.parametrize("page", [*OTHERS, *BY_HAND], ids=relative)
def test_no_measured_figure_goes_without_a_name(page: Path) -> None:
    text = re.sub(r"(<!-- made by .+? -->).*?\1", "", read(page), flags=re.DOTALL)
    assert re.findall(r"\d[\d.]* ± [\d.]+(?!<!--)(?![\d.])", plain(text)) == []


def test_no_comment_of_the_configuration_states_a_measurement() -> None:
    for file in sorted((ROOT / "config").rglob("*.yaml")):
        assert not re.search(r"#.*(±|\d (percentage )?points)", read(file)), relative(file)


def test_every_figure_is_made_by_a_command_and_is_in_its_table() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", read(ROOT / "Makefile"), re.MULTILINE))
    commands = set(podium.list_commands(click.Context(podium)))
    folder = (ROOT / MEASUREMENTS).with_suffix("")
    tables = "\n".join([plain(read(ROOT / MEASUREMENTS)), *map(read, sorted(folder.glob("*.csv")))])
    for name, figure in FIGURES.items():
        program, command, *_ = figure["command"].split()
        assert command in {"make": targets, "podium": commands}[program], name
        if figure.get("table"):
            assert re.search(rf"(?<![\d.]){re.escape(figure['value'])}(?![\d.])", tables), f"{name}: not in its table"


# ── statements ───────────────────────────────────────────────────────────────────


def defaults(model: type[BaseModel]) -> dict[str, set[Any]]:
    """Key → its numeric defaults, of all models below `model`."""
    found: dict[str, set[Any]] = {}
    waiting, seen = [model], set()
    while waiting:
        if (each := waiting.pop()) in seen:
            continue
        seen.add(each)
        for name, field in each.model_fields.items():
            if isinstance(field.default, int | float) and not isinstance(field.default, bool):
                found.setdefault(name, set()).add(float(field.default))
            waiting += models_of(field.annotation)
    return found


def test_a_default_that_a_page_states_is_the_codes() -> None:
    known: dict[str, set[Any]] = {}
    for model in FILES.values():
        for name, values in defaults(model).items():
            known.setdefault(name, set()).update(values)
    stated = [
        (relative(page), name, float(value))
        for page in [*OTHERS, *BY_HAND]
        for name, value in re.findall(r"`(?:\w+\.)*(\w+)` \((\d+(?:\.\d+)?)[,;)]", read(page))
        if name in known
    ]
    assert stated
    assert [each for each in stated if each[2] not in known[each[1]]] == []


@pytest.mark.parametrize("page", BY_HAND, ids=relative)
def test_the_examples_of_configuration_are_valid(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", read(page), re.DOTALL)
    copytree(ROOT / "config", config := tmp_path / "config")
    for number, block in enumerate(blocks):
        values = yaml.safe_load(block)
        if "workers" in values:
            Pool.from_file_values(values)
            continue
        if "channels" in values:
            Alerts.from_file_values(values)
            continue
        recipe = {"base": "paper", "name": f"example-{number}", **values}
        (config / "recipes" / f"example-{number}.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        assert isinstance(load_recipe(config, f"example-{number}"), Recipe)


def test_installed_packages_are_called_by_their_names() -> None:
    code = [path for name in ("ops", "pipelines", "assets") for path in (ROOT / name).rglob("*.py")]
    for file in [*EVERY_PAGE, *code]:
        assert not re.search(r"install[^\n]*['\" ]podium(\[|['\" ]|$)", read(file), re.MULTILINE), relative(file)


def test_every_folder_of_tests_is_named() -> None:
    page = read(ROOT / "docs" / "extend.md")
    folders = [path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*.py"))]
    assert len(folders) > 7
    assert [name for name in folders if f"`{name}`" not in page] == []


def test_the_layers_are_those_that_the_code_has() -> None:
    rows = re.findall(r"^\| (\d+) \| (`.+?`) \|", read(ROOT / "docs" / "extend.md"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(OPS_LAYERS) + 1))
    assert [set(re.findall(r"`(\w+)`", packages)) for _, packages in rows] == list(OPS_LAYERS)


@pytest.mark.parametrize("page", ["security.md", "operate.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    text = read(ROOT / "docs" / page)
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 9
    for file, test in named:
        source = ROOT / file
        assert source.is_file(), f"{page} names {file}"
        if test:
            assert re.search(rf"def {test}\b", read(source)), f"{page} names {file}::{test}"


def test_the_incidents_are_ten_each_with_its_parts() -> None:
    incidents = re.split(r"^### \d+\. ", read(ROOT / "docs" / "operate.md"), flags=re.MULTILINE)[1:]
    assert len(incidents) >= 10
    for incident in incidents:
        for part in ("**You see**", "**Cause.**", "**Do this.**", "**Lost:**", "**Test:**"):
            assert part in incident, incident.splitlines()[0]
