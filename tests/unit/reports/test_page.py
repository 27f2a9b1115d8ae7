"""The HTML page: well formed, self-contained, without questions; its pictures at two widths. The page of a verdict:
texts of persons and workers stay text, and nothing is loaded."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from ops.core.charts import NARROW_IN, SERIES_STYLES, WIDE_IN, Chart, draw_figure, render_svg
from ops.core.workspace import Workspace
from ops.release import aliases
from ops.release.dossier import MEAN_LABEL, Dossier, Opponent, PairedComparison
from ops.release.lineage import describe_cost
from ops.release.promotion import GateCheck, GateDecision
from ops.reports.decision_page import VersionStatus, render_decision_page
from ops.reports.evidence import Evidence, TrainingCost
from ops.reports.exhibit import EXHIBITS, ExhibitContent, MadeExhibit, Table, make_exhibit, report_file
from ops.reports.page import format_markdown, render_page, write_page, write_pictures
from ops.reports.report_head import ReleaseInfo, describe_training_cost, list_facts, load_release_info, write_sentences
from tests.releases import YES, checkout, shared_store, version
from tests.unit.reports.conftest import first, rows, system

VOID = {"meta", "br", "hr", "img", "link", "input"}
LOADING = {"script", "link", "img", "iframe", "object", "embed", "image"}
DRAWN = ("accuracy", "accuracy_against_usd", "claims", "worker_use", "steps", "shapes", "training")
"""Exhibits with pictures."""
RELEASED = ReleaseInfo("2026-01-02 03:04 UTC", "0123abc", "7", "7", "promoted <by the gate>")


class Reader(HTMLParser):
    """Records the contents of a page, and fails if its tags do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "xlink:href", "src", "srcset", "data", "action"):
                self.references.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def figures() -> dict[tuple[int, float], Any]:
    """The figures of `html`, by a chart's identity and width."""
    return {}


@pytest.fixture(scope="module")
def html(evidence: Evidence, made: list[MadeExhibit], figures: dict[tuple[int, float], Any]) -> str:
    def kept(chart: Chart, width: float, label: str) -> Any:
        return figures.setdefault((id(chart), width), draw_figure(chart, width, label))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ops.core.charts.draw_figure", kept)
        return render_page(evidence, made, RELEASED)


def test_the_page_is_well_formed_and_loads_nothing(html: str) -> None:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert reader.tags & LOADING == set()
    assert all(reference.startswith("#") for reference in reader.references)
    assert {reference[1:] for reference in reader.references} <= set(reader.ids)
    assert len(set(reader.ids)) == len(reader.ids)
    used = set(re.findall(r"url\(([^)]*)\)", html))
    assert used
    assert all(each.startswith("#") and each[1:] in reader.ids for each in used)
    assert "@import" not in html


def test_the_first_screen_states_subject_decision_and_result(html: str) -> None:
    shown = html[html.index("<h1>") : html.index("</header>")]
    for text in ("2026-01-02 03:04 UTC", "0123abc", "version 7, the policy of this report", "promoted &lt;by the gate"):
        assert text in shown
    assert "podium report quickstart --seed 1" in shown
    assert len(re.findall(r'<p class="said">', shown)) == 3
    assert shown.count("<figure") == 1


def test_the_result_is_three_sentences_in_the_figures_of_the_exhibits(evidence: Evidence) -> None:
    reached, difference, use = write_sentences(evidence, "not promoted; failed checks: cost")
    assert reached == (
        "The Conductor writes a workflow of calls to the 2 workers of the pool `quickstart` for each question, and "
        "solves 80.0 % of the in-domain questions (95 % interval 73.7\u00a0…\u00a084.7) and 80.0 % of "
        "the out-of-distribution questions (95 % interval 71.1\u00a0…\u00a086.7)."
    )
    assert difference.startswith(
        "The difference to the best worker (solver) is +30.0 points in-domain (95 % interval +23.5 to +36.5, "
        "significant) at 2.00 times its price, $2.00 instead of $1.00 a question, and +30.0 points out-of-distribution "
    )
    assert use == (
        "Use it where this gain is worth the price: it is significant on all questions. What speaks against it: "
        "5 × context is +15.0 points more accurate in-domain ($10.00 instead of $2.00 a question); 5 × context is "
        "+15.0 points more accurate out-of-distribution ($10.00 instead of $2.00 a question); the promotion gate "
        "refused it; the questions are generated and the workers are small programs, so no figure holds for real "
        "models."
    )


@pytest.mark.parametrize(
    ("right", "advice"),
    [
        (51, "Do not use it in place of the best worker: no gain is proven. What speaks against it: "),
        (30, "Do not use it in place of the best worker: no gain is proven. What speaks against it: worker solver is"),
    ],
)
def test_without_a_proven_gain_the_first_screen_advises_against_it(right: int, advice: str, evidence: Evidence) -> None:
    made = rows(first(right), 2.0)
    systems = evidence.systems | {"conductor": system("conductor", "Conductor", made, "Conductor")}
    *_, use = write_sentences(replace(evidence, systems=systems, conductor_rows=made))
    assert use.startswith(advice)


def test_the_first_screen_says_what_training_cost(evidence: Evidence) -> None:
    assert describe_training_cost(evidence) == ""
    trained = replace(evidence, training_cost=TrainingCost(140, 17920, 96.0, 17.3105))
    assert "140 steps with 17,920 rollouts in 1.6 minutes" in describe_training_cost(trained)
    assert "Without the cache, the rollouts would have cost $17.31." in render_page(trained, [], RELEASED)
    tags = {"paid_usd": "11.42", "training_paid_usd": "7.23", "rollouts_usd": "17.3105"}
    shown = render_page(trained, [], RELEASED._replace(cost=describe_cost(tags)))
    assert f"1.6 minutes. {describe_cost(tags)}" in shown
    assert shown.count("17.31") == 1


def test_missing_parts_are_named_on_the_first_screen(evidence: Evidence) -> None:
    less = replace(evidence, systems={}, conductor_rows=())
    assert write_sentences(less) == []
    assert "Nothing was scored yet: podium evaluate quickstart --seed 1." in render_page(
        less, [], ReleaseInfo("today", "")
    )
    assert list_facts(ReleaseInfo("today", "")) == {
        "date": "today", "commit": "unknown", "version": "not registered", "champion": "none", "verdict": "not judged",
    }  # fmt: skip
    assert list_facts(ReleaseInfo("today", "a", "3", "2"))["champion"] == "version 2, another policy"
    assert list_facts(ReleaseInfo("today", "0123456789abcdef0123-dirty"))["commit"] == "0123456789ab-dirty"


def test_registered_facts_of_a_policy_are_read(tmp_path: Path) -> None:
    workspace = checkout(tmp_path / "project", shared_store())
    now = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    known = version(workspace)
    policy = known.tags["policy"]
    expected = ReleaseInfo("2026-01-02 03:04 UTC", "abc", known.version, cost=describe_cost(known.tags))
    assert load_release_info(workspace, policy, "abc", now) == expected
    aliases.promote_version(workspace, known.version, YES)
    found = load_release_info(workspace, policy, "abc", now)
    assert (found.champion, found.verdict) == (known.version, "promoted")
    assert load_release_info(workspace, "another", "abc", now)[2:] == ("", known.version, "", "")


def test_text_between_backticks_is_code(html: str, evidence: Evidence) -> None:
    assert "`" not in html
    absent = replace(evidence, unreadable={"a": "`podium run <x>` writes it"})
    assert "<code>podium run &lt;x&gt;</code> writes it" in render_page(absent, [], RELEASED)


def test_every_exhibit_is_there_labelled_with_its_n(html: str) -> None:
    sections = re.findall(r'<section id="([a-z_]+)"(?: class="small")?>(.*?)</section>', html, re.DOTALL)
    assert [name for name, _ in sections] == list(EXHIBITS)
    for _, text in sections:
        assert '<span class="label">synthetic</span>' in text
        assert '<p class="note">n: ' in text
    assert re.findall(r'<a href="#([a-z_]+)">', html) == list(EXHIBITS)


def test_no_question_answer_or_workflow_is_shown(html: str, evidence: Evidence, made: list[MadeExhibit]) -> None:
    assert any(row.benchmark == "gpqa_diamond" and "SECRET" in row.problem_id for row in evidence.conductor_rows)
    assert "SECRET" not in html
    assert "SECRET" not in format_markdown(evidence, made)


def test_steps_that_were_not_run_or_read_are_reported(evidence: Evidence) -> None:
    less = replace(evidence, curves={}, unreadable={"five_context": "a.parquet: <is> missing"})
    training = [make_exhibit(EXHIBITS["training"], less)]
    shown = render_page(less, training, RELEASED)
    assert '<p class="missing">not run: podium train quickstart --seed 1</p>' in shown
    assert "Not read: five_context (a.parquet: &lt;is&gt; missing)" in shown
    text = format_markdown(less, training)
    assert "Not read: five_context (a.parquet: <is> missing)." in text
    assert "not run: podium train quickstart --seed 1" in text


def test_a_run_of_real_problems_has_no_label(evidence: Evidence) -> None:
    real = replace(evidence, run=evidence.run._replace(is_synthetic=False))
    shown = render_page(real, [make_exhibit(EXHIBITS["steps"], real)], RELEASED)
    assert 'class="label"' not in shown
    assert "<strong>Synthetic" not in shown


def test_markdown_tables_are_whole(evidence: Evidence, made: list[MadeExhibit]) -> None:
    lines = format_markdown(evidence, made).splitlines()
    for above, line in pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", above)) == len(re.findall(r"(?<!\\)\|", line))
    assert sum(line.startswith("## ") for line in lines) == len(EXHIBITS)


def test_the_page_and_its_pictures_are_files(tmp_path: Path, evidence: Evidence, made: list[MadeExhibit]) -> None:
    workspace, made = Workspace(tmp_path), made[:3]
    written = write_page(workspace, evidence, made[1:2], RELEASED)
    assert written == tmp_path / ".podium" / "reports" / "quickstart-0123.html"
    assert written.read_text(encoding="utf-8") == render_page(evidence, made[1:2], RELEASED)
    other = evidence.run._replace(recipe="reproduction")
    assert report_file(workspace, other).name == "quickstart-0123-reproduction.html"
    pictures = write_pictures(workspace, evidence, made)
    assert [file.name for file in pictures] == [
        "accuracy-1.png", "accuracy_against_usd-1.png", "accuracy_against_usd-3.png"
    ]  # fmt: skip
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in pictures)


def charts(shown: ExhibitContent) -> list[Chart]:
    return [part for part in shown.parts if not isinstance(part, Table)]


def words(drawn: Any) -> list[Any]:
    """The drawn texts of a figure: ticks inside their axis, axis titles, labels, legend."""
    axes = drawn.axes[0]
    ticks = [
        tick.label1
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    ]
    legends = [text for legend in drawn.legends for text in legend.get_texts()]
    shown = [*ticks, *axes.texts, axes.xaxis.label, axes.yaxis.label, axes._right_title, *legends]
    return [text for text in shown if text.get_text()]


@pytest.mark.usefixtures("html")
@pytest.mark.parametrize("width", [WIDE_IN, NARROW_IN], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", DRAWN)
def test_no_words_of_a_picture_overlap_or_leave_it(
    name: str, width: float, made: list[MadeExhibit], figures: Any
) -> None:
    (shown,) = (each.content for each in made if each.exhibit.name == name)
    assert isinstance(shown, ExhibitContent)
    for chart in charts(shown):
        drawn = figures[id(chart), width]
        drawn.draw_without_rendering()
        boxes = {f"{number} {text.get_text()}": text.get_window_extent() for number, text in enumerate(words(drawn))}
        for text, box in boxes.items():
            assert box.x0 >= drawn.bbox.x0 - 1 and box.x1 <= drawn.bbox.x1 + 1, text
            assert box.y0 >= drawn.bbox.y0 - 1 and box.y1 <= drawn.bbox.y1 + 1, text
        for (one, a), (other, b) in combinations(boxes.items(), 2):
            apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1
            assert apart, f"{one} on {other}"


def test_without_colours_no_two_look_alike() -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    for one, other in combinations(SERIES_STYLES, 2):
        assert one.marker != other.marker
        assert one.hatch != other.hatch or abs(lightness(one.colour) - lightness(other.colour)) > 0.08


def test_two_pictures_share_no_id_and_the_same_one_is_drawn_alike(evidence: Evidence) -> None:
    chart = charts(EXHIBITS["worker_use"].make_content(evidence))[0]
    one, again, other = (render_svg(chart, prefix) for prefix in ("a", "a", "b"))
    assert one == again
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in (one, other)]
    assert ids[0] and not ids[0] & ids[1]
    assert one.startswith("<svg")
    assert "<metadata>" not in one


# ── the page of a verdict ─────────────────────────────────────────────────────────

HOSTILE = '--><script src="http://example.org/x.js">alert(1)</script>'


def of_version(text: str = "plain", **fate: str) -> str:
    pair = PairedComparison(MEAN_LABEL, 10, 0.7, 0.6, -0.1, 0.3, 3, 2, {"usd": 0.002, "their_usd": 0.001})
    opponents = (
        Opponent(f"champion, {text}", {"policy": text}, (pair, replace(pair, benchmark=text)), text),
        Opponent("best single worker", {}, ()),
    )
    dossier = Dossier("2", "2026-01-01 00:00:00", {"recipe": text}, {"mmlu": text}, {"x": text}, 0.975, opponents)
    decision = GateDecision(False, (GateCheck(text, 1.0, 2.0, False, text),), analysis=3, against="1")
    return render_decision_page("2", decision, dossier, VersionStatus("not promoted; failed checks: cost", **fate))


def test_text_of_others_stays_text_on_the_page_of_a_verdict() -> None:
    made = of_version(HOSTILE, override=HOSTILE, rolled_back=HOSTILE)
    assert "<script" not in made and "&lt;script" in made
    shown = re.sub(r"<!--.*?-->", "", made, flags=re.DOTALL)  # matplotlib also writes texts there
    assert "<script" not in shown
    assert re.findall(r'(?:src|href)="(?!#)', shown) == []


def test_a_verdict_says_what_became_of_the_version_and_why() -> None:
    made = of_version()
    assert "<title>Conductor version 2: not promoted</title>" in made
    said = ("3 against that champion", "97.5 %", "+10.0", "-10.0 … +30.0", "$0.0020", "No question was scored by both")
    for part in said:
        assert part in made, part
    assert "promoted by override" in of_version(override="Ada: why")
    assert "rolled back" in of_version(rolled_back="Ada: why")
