"""The interface to Great Expectations: named rules over a table, a report in sentences, and the Data Docs pages.

The tables hold facts about rows (lengths, counts, flags, ids), never a question or an answer, so that what Great
Expectations stores and shows cannot repeat a benchmark's text.

As generated, each Data Docs page loads styles and scripts from five content networks, and an image whose address
carries an id of the project. Without a network such a page is bare, and with one it tells third parties when it was
opened. These links are therefore removed, a stylesheet of our own is inserted, and an index lists the newest results.
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
    """The newest validation of one suite, as the index lists it: `passed` of its `rules` passed at `time` (UTC)."""

    suite: str
    success: bool
    passed: int
    rules: int
    time: str


def read_results(validations: Path) -> list[SuiteResult]:
    """Read the newest result of each suite from the files of Great Expectations' result store."""
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
    """Make every page of the site self-contained and write the site's index."""
    for page in docs.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if "<style>/* podium */" not in text:
            text = _REMOTE.sub("", text).replace("</head>", f"<style>/* podium */{_STYLE}</style></head>", 1)
            write_text(page, text)
    write_text(docs / "index.html", _render_index(docs, results))


def find_newest_page(docs: Path, suite: str) -> Path:
    """Return the newest page of a suite; the index if the suite has none."""
    pages = sorted((docs / "validations" / suite).rglob("*.html"))
    return pages[-1] if pages else docs / "index.html"


def _render_index(docs: Path, results: list[SuiteResult]) -> str:
    rows = "".join(
        f'<tr><td class="{"pass" if result.success else "fail"}"></td>'
        f'<td><a href="{find_newest_page(docs, result.suite).relative_to(docs).as_posix()}">'
        f"{html.escape(result.suite)}</a></td>"
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
"""The number of rows that a failure names, and the number of failures that a summary names."""
_SITE = "podium"


@dataclass(frozen=True)
class QualityReport:
    """The result of a check: the failures, in sentences that name rows.

    `checked` is the number of rows, and `skipped` the number of problems that could not be checked. `page` is the Data
    Docs page of the check, if one was written.
    """

    success: bool
    failures: list[str]
    checked: int
    skipped: int = 0
    page: Path | None = None
    set_aside: int = 0
    """The number of rows that were left out before the check because their gold answer failed."""

    def __bool__(self) -> bool:
        return self.success

    @property
    def summary(self) -> str:
        """The first failures, or the number of checked rows if there are none."""
        more = len(self.failures) - MAX_NAMED_ROWS
        listing = "; ".join(self.failures[:MAX_NAMED_ROWS]) + (f"; and {more} more" if more > 0 else "")
        aside = f"; {self.set_aside} set aside before, their gold answers failed" if self.set_aside else ""
        return (listing or f"{self.checked} rows checked") + aside


class Rule(NamedTuple):
    """An expectation of Great Expectations, and the fault that it finds in words."""

    fault: str
    expectation: Any


def load_expectations() -> Any:
    """Return the module with Great Expectations' expectations. Untyped, because the library does not export them for
    type checkers."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    return gx.expectations


def expect_flag(column: str, expected: bool = True) -> Any:
    """Return the expectation that every row has the value `expected` in this boolean column."""
    return load_expectations().ExpectColumnValuesToBeInSet(column=column, value_set=[expected])


def expect_among(column: str, values: Sequence[str]) -> Any:
    """Return the expectation that every row has one of `values` in this column."""
    return load_expectations().ExpectColumnValuesToBeInSet(column=column, value_set=list(values))


def expect_between(column: str, least: float | None, most: float | None = None) -> Any:
    """Return the expectation that every row has a number between `least` and `most`, both included; None is no
    bound."""
    return load_expectations().ExpectColumnValuesToBeBetween(column=column, min_value=least, max_value=most)


def expect_unique(column: str) -> Any:
    """Return the expectation that no two rows have the same value in this column."""
    return load_expectations().ExpectColumnValuesToBeUnique(column=column)


def docs_folder(workspace: Workspace) -> Path:
    """Return the folder of Data Docs, whose `index.html` can be opened in a browser."""
    return workspace.state / "data_docs"


def run_suite(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    rules: Sequence[Rule],
    *,
    workspace: Workspace | None = None,
    skipped: int = 0,
) -> QualityReport:
    """Check `rows`, which name themselves in the column "row", by these rules; return the report.

    With a workspace, the Data Docs page of the suite `name` is written in place of its earlier page (Dagster keeps the
    history). An empty table is a failure.
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
    """Return the folder into which the context writes pages; it is outdated if the checkout was moved."""
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
    """Keep only the newest result of the suite, and write its pages and the index."""
    results, docs = Path(context.root_directory) / "uncommitted" / "validations", docs_folder(workspace)
    for old in sorted((results / name).glob("*/*"), key=lambda run: run.name)[:-1]:
        shutil.rmtree(old)
    shutil.rmtree(docs / "validations" / name, ignore_errors=True)
    context.build_data_docs(site_names=[_SITE], resource_identifiers=_list_identifiers(context, docs, name))
    finish_site(docs, read_results(results))
    return find_newest_page(docs, name)


def _list_identifiers(context: Any, docs: Path, name: str) -> list[Any] | None:
    """Return the identifiers of a suite's pages: its expectations and its result; None for all pages if there is no
    site yet."""
    from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier

    if not (docs / "index.html").is_file():
        return None
    suite = ExpectationSuiteIdentifier(name)
    results = context.validation_results_store.list_keys()
    return [suite, *(result for result in results if result.expectation_suite_identifier == suite)]
