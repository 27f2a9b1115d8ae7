"""The thin edge to Great Expectations: named rules over a table, a verdict in sentences, and Data Docs.

The tables hold facts about rows (lengths, counts, yes and no, ids), never a question or an answer: what Great
Expectations stores and shows cannot repeat a benchmark's text.

As generated, each page of Data Docs loads styles and scripts from five content networks, and an image whose address
carries an id of the project. Without a network such a page is bare, and with one it tells a third party when it was
opened; so these are taken out, a stylesheet of our own goes in, and an index lists the newest results.
"""

from __future__ import annotations

import html
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ops.core.atomic import write_text
from ops.core.errors import first_line
from ops.core.workspace import Workspace

log = logging.getLogger(__name__)

_REMOTE = re.compile(
    r"<script[^>]+src=\"https?://[^>]*>\s*</script>|<link[^>]+href=\"https?://[^>]*>"
    r"|<img[^>]+src=\"https?://[^>]*>|<footer>.*?</footer>|url\('https?://[^)]*\)",
    re.S,
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2024; margin: 1.5rem auto; max-width: 70rem; padding: 0 1rem }
a { color: #0b5cad } h1 { font-size: 1.4rem } h4, h5 { font-size: 1.05rem; margin: .4rem 0 } .lead { color: #60646c }
table { border-collapse: collapse; margin: .3rem 0 1rem } th { text-align: left; font-weight: 600 }
td, th { border-bottom: 1px solid #d9dce1; padding: .3rem .8rem .3rem 0; vertical-align: top }
body > .container-fluid > .row { display: flex; gap: 2rem; align-items: flex-start }
body > .container-fluid > .row > :first-child { flex: 0 0 15rem; position: sticky; top: 1rem; font-size: .9em }
.nav { list-style: none; padding: 0; margin: 0 } .alert-secondary { background: #f0f2f5; padding: .1rem .6rem }
.badge { background: #eceff3; border-radius: 4px; padding: 0 .3rem }
.card:has(.btn-group), [data-toggle="collapse"], .ge-breadcrumbs-item.active { display: none }
ol.breadcrumb { list-style: none; padding: 0 }
.fa-check-circle::before, .pass::before { content: "✓"; color: #18794e; font-style: normal; font-weight: 700 }
.fa-times::before, .fail::before { content: "✗"; color: #cd2b31; font-style: normal; font-weight: 700 }
.fa-exclamation-triangle::before { content: "!"; color: #ad5700; font-style: normal; font-weight: 700 }
"""


class SuiteResult(NamedTuple):
    """The newest validation of one suite, as the index lists it."""

    suite: str
    success: bool
    passed: int
    rules: int
    time: str


def read_results(validations: Path) -> list[SuiteResult]:
    """The files of Great Expectations' store of results, one a suite."""
    results = []
    for file in sorted(validations.glob("*/*/*/*.json")):
        try:
            validation = json.loads(file.read_text(encoding="utf-8"))
            numbers = validation["statistics"]
            kept, rules = numbers["successful_expectations"], numbers["evaluated_expectations"]
            at = str(validation["meta"]["run_id"]["run_time"])[:19].replace("T", " ")
            results.append(SuiteResult(validation["suite_name"], bool(validation["success"]), kept, rules, at))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read (%s): the index of the data pages leaves it out", file, first_line(error))
    return results


def finish_site(docs: Path, results: list[SuiteResult]) -> None:
    """Make every page of the site self-contained and write its index."""
    for page in docs.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if "<style>/* podium */" not in text:
            text = _REMOTE.sub("", text).replace("</head>", f"<style>/* podium */{_STYLE}</style></head>", 1)
            write_text(page, text)
    write_text(docs / "index.html", _render_index(docs, results))


def find_newest_page(docs: Path, suite: str) -> Path:
    """The newest page of a suite; the index where there is none."""
    pages = sorted((docs / "validations" / suite).rglob("*.html"))
    return pages[-1] if pages else docs / "index.html"


def _render_index(docs: Path, results: list[SuiteResult]) -> str:
    rows = "".join(
        f'<tr><td class="{"pass" if result.success else "fail"}"></td>'
        f'<td><a href="{find_newest_page(docs, result.suite).relative_to(docs).as_posix()}">{html.escape(result.suite)}</a></td>'
        f"<td>{result.passed} of {result.rules}</td><td>{result.time} UTC</td></tr>"
        for result in results
    )
    head = "<tr><th></th><th>suite</th><th>rules kept</th><th>checked</th></tr>"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Podium: data checks</title>'
        f"<style>/* podium */{_STYLE}</style></head><body><h1>Data checks</h1>"
        "<p>The newest result of each suite. Dagster keeps the history.</p>"
        f"<table>{head}{rows}</table></body></html>\n"
    )


MAX_NAMED_ROWS = 8
"""How many rows a failure names in its sentence, and how many failures a summary."""
_SITE = "podium"


@dataclass(frozen=True)
class QualityReport:
    """The verdict: what failed, in sentences that name rows. `skipped` problems could not be checked.

    `page` is the Data Docs page of the run, where one was written.
    """

    success: bool
    failures: list[str]
    checked: int
    skipped: int = 0
    page: Path | None = None
    set_aside: int = 0
    """Rows that were left out before, because their gold answer failed: few enough to go on without them."""

    def __bool__(self) -> bool:
        return self.success

    @property
    def summary(self) -> str:
        """The first failures, or how many rows were checked."""
        more = len(self.failures) - MAX_NAMED_ROWS
        listing = "; ".join(self.failures[:MAX_NAMED_ROWS]) + (f"; and {more} more" if more > 0 else "")
        aside = f"; {self.set_aside} set aside before, their gold answers failed" if self.set_aside else ""
        return (listing or f"{self.checked} rows checked") + aside


class Rule(NamedTuple):
    """An expectation, and what is wrong when it fails."""

    fault: str
    expectation: Any


def load_expectations() -> Any:
    """Great Expectations' expectations. Untyped: it does not export them as type checkers accept."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    return gx.expectations


def expect_flag(column: str, expected: bool = True) -> Any:
    """Every row has `wanted` in the yes-or-no column."""
    return load_expectations().ExpectColumnValuesToBeInSet(column=column, value_set=[expected])


def expect_among(column: str, values: Sequence[str]) -> Any:
    """Every row has one of `values`."""
    return load_expectations().ExpectColumnValuesToBeInSet(column=column, value_set=list(values))


def expect_between(column: str, least: float | None, most: float | None = None) -> Any:
    """Every row has a number within the bounds, which count as within; None: no bound."""
    return load_expectations().ExpectColumnValuesToBeBetween(column=column, min_value=least, max_value=most)


def expect_unique(column: str) -> Any:
    """No two rows share a value."""
    return load_expectations().ExpectColumnValuesToBeUnique(column=column)


def docs_folder(workspace: Workspace) -> Path:
    """The folder of Data Docs; open `index.html` in a browser."""
    return workspace.state / "data_docs"


def run_suite(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    rules: Sequence[Rule],
    *,
    workspace: Workspace | None = None,
    skipped: int = 0,
) -> QualityReport:
    """Check `rows`, each with its name in column "row". With a workspace, write the suite's Data Docs page.

    No rows is a failure. `name` is the suite's; its earlier page is replaced (Dagster keeps the history).
    """
    if not rows:
        return QualityReport(False, ["there is nothing to check"], 0, skipped)
    import pandas as pd

    load_expectations()
    with _open_context(workspace) as context:
        result, words_of = _run_validation(context, name, pd.DataFrame(list(rows)), rules)
        page = _build_page(context, workspace, name) if workspace is not None else None
    failed = [outcome for outcome in result.results if not bool(outcome.success)]
    failures = [_describe_failure(words_of[outcome.expectation_config.id], outcome) for outcome in failed]
    return QualityReport(bool(result.success), failures, len(rows), skipped, page)


def _run_validation(context: Any, name: str, frame: Any, rules: Sequence[Rule]) -> tuple[Any, dict[str, str]]:
    import great_expectations as gx

    for words, expectation in rules:
        expectation.description = f"Fault looked for: {words}."
    # All at once: each that is added later would write the suite's file again.
    suite = context.suites.add_or_update(gx.ExpectationSuite(name, expectations=[rule.expectation for rule in rules]))
    source = context.data_sources.add_or_update_pandas(_SITE)
    batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
    definition = gx.ValidationDefinition(name=name, data=batch, suite=suite)
    result = context.validation_definitions.add_or_update(definition).run(
        batch_parameters={"dataframe": frame},
        result_format={
            "result_format": "COMPLETE",
            "unexpected_index_column_names": ["row"],
            "return_unexpected_index_query": False,
        },
    )
    return result, {known.id: words for known, (words, _) in zip(suite.expectations, rules, strict=True)}


def _describe_failure(words: str, outcome: Any) -> str:
    if (outcome.exception_info or {}).get("raised_exception"):
        return f"{words}: could not be checked ({outcome.exception_info.get('exception_message')})"
    if "observed_value" in outcome.result:
        return f"{words}: found {outcome.result['observed_value']}"
    listed = outcome.result.get("partial_unexpected_index_list") or ()
    rows = list(dict.fromkeys(str(item["row"]) for item in listed))[:MAX_NAMED_ROWS]
    more = int(outcome.result.get("unexpected_count") or 0) - len(rows)
    # Two rows of one name are one name: "more" would count the second.
    unnamed = f" and {more} more" if more > 0 and len(rows) == MAX_NAMED_ROWS else ""
    return f"{words}: {', '.join(rows)}{unnamed}"


# ── contexts and pages ───────────────────────────────────────────────────────


@contextmanager
def _open_context(workspace: Workspace | None) -> Iterator[Any]:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context: Any
    if workspace is None:
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        yield context
        return
    from filelock import FileLock

    folder = workspace.state / "expectations"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # a context's files take one writer at a time
        context = gx.get_context(mode="file", project_root_dir=folder)
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        if set(context.get_site_names()) != {_SITE} or _find_base_folder(context) != str(docs_folder(workspace)):
            for site in context.get_site_names():
                context.delete_data_docs_site(site)
            context.add_data_docs_site(_SITE, _site_settings(docs_folder(workspace)))
        yield context


def _find_base_folder(context: Any) -> str:
    """Where the context writes pages: another folder than it should, once the checkout was moved."""
    sites = context.variables.data_docs_sites or {}
    return str(sites[_SITE]["store_backend"].get("base_directory"))


def _site_settings(folder: Path) -> Any:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": _view_settings("IndexPageView")},
        "site_section_builders": {
            "expectations": {"view": _view_settings("PageView")},
            "validations": {"view": _view_settings("PageView")},
            "profiling": "none",
        },
    }


def _view_settings(name: str) -> dict[str, str]:
    return {"module_name": "ops.quality.views", "class_name": name}


def _build_page(context: Any, workspace: Workspace, name: str) -> Path:
    """Keep the newest result of the suite alone, and write its pages and the index."""
    results, docs = Path(context.root_directory) / "uncommitted" / "validations", docs_folder(workspace)
    for old in sorted((results / name).glob("*/*"), key=lambda run: run.name)[:-1]:
        shutil.rmtree(old)
    shutil.rmtree(docs / "validations" / name, ignore_errors=True)
    context.build_data_docs(site_names=[_SITE], resource_identifiers=_list_identifiers(context, docs, name))
    finish_site(docs, read_results(results))
    return find_newest_page(docs, name)


def _list_identifiers(context: Any, docs: Path, name: str) -> list[Any] | None:
    """What a suite's pages show: its expectations and its result; None, which means all, where there is no site yet."""
    from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier

    if not (docs / "index.html").is_file():
        return None
    suite = ExpectationSuiteIdentifier(name)
    results = context.validation_results_store.list_keys()
    return [suite, *(result for result in results if result.expectation_suite_identifier == suite)]
