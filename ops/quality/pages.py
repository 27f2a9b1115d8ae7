"""Data Docs made to be read anywhere: nothing is fetched from outside, and an index of the newest results.

As generated, each page loads styles and scripts from five content networks, and an image whose
address carries an id of the project. Without a network such a page is bare, and with one it tells a
third party when it was opened; so these are taken out and a stylesheet of our own goes in.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import NamedTuple

from ops.core.atomic import write_text

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
    kept: int
    rules: int
    at: str


def read_results(validations: Path) -> list[SuiteResult]:
    """What lies in Great Expectations' store of results: one file a suite."""
    results = []
    for file in sorted(validations.glob("*/*/*/*.json")):
        validation = json.loads(file.read_text(encoding="utf-8"))
        numbers = validation["statistics"]
        kept, rules = numbers["successful_expectations"], numbers["evaluated_expectations"]
        at = str(validation["meta"]["run_id"]["run_time"])[:19].replace("T", " ")
        results.append(SuiteResult(validation["suite_name"], bool(validation["success"]), kept, rules, at))
    return results


def finish(docs: Path, results: list[SuiteResult]) -> None:
    """Make every page of the site self-contained and write its index."""
    for page in docs.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if "<style>/* podium */" not in text:
            text = _REMOTE.sub("", text).replace("</head>", f"<style>/* podium */{_STYLE}</style></head>", 1)
            write_text(page, text)
    write_text(docs / "index.html", _index(docs, results))


def page_of(docs: Path, suite: str) -> Path:
    """The newest page of a suite; the index where there is none."""
    pages = sorted((docs / "validations" / suite).rglob("*.html"))
    return pages[-1] if pages else docs / "index.html"


def _index(docs: Path, results: list[SuiteResult]) -> str:
    rows = "".join(
        f'<tr><td class="{"pass" if result.success else "fail"}"></td>'
        f'<td><a href="{page_of(docs, result.suite).relative_to(docs).as_posix()}">{html.escape(result.suite)}</a></td>'
        f"<td>{result.kept} of {result.rules}</td><td>{result.at} UTC</td></tr>"
        for result in results
    )
    head = "<tr><th></th><th>suite</th><th>rules kept</th><th>checked</th></tr>"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Podium: data checks</title>'
        f"<style>/* podium */{_STYLE}</style></head><body><h1>Data checks</h1>"
        "<p>The newest result of each suite. Dagster keeps the history.</p>"
        f"<table>{head}{rows}</table></body></html>\n"
    )
