"""Which upstream item a problem is: the names under which releases, splits and copies carry the same question.

An id alone says little: `mmlu-17` of one upstream split is another question than `mmlu-17` of the next. A rule
reads only ids that name their item whatever the split; every other id names nothing, and texts decide.
"""

from __future__ import annotations

import re

from ops.core.problem import Problem

_RULES: dict[str, tuple[re.Pattern[str], str]] = {
    # MATH's own file names, which MATH500 keeps (`unique_id`): MATH500 lies inside MATH test.
    "math500": (re.compile(r"(?:^|.*[/-])((?:train|test)/[a-z_]+/\d+)(?:\.json)?$"), "MATH"),
    # Contest ids are the same in every cumulative release; copies put a name or the release in front.
    "livecodebench": (re.compile(r"(?:lcb-)?(?:(?:release_)?v\d+[-/:])?(\w+)$"), "LiveCodeBench"),
    # Both of our splits are cut from one upstream split, whose row numbers are the ids.
    "rlpr": (re.compile(r"((?:rlpr|webinstruct)-\d+)$"), "RLPR"),
    # Split, subject and place; a bare row number is not enough.
    "mmlu": (re.compile(r"mmlu-((?:dev|val|validation|test)-[a-z_]+-\d+)$"), "MMLU"),
    "bigcodebench": (re.compile(r"bigcodebench/(\d+)$"), "BigCodeBench"),
}


def upstream_item(problem: Problem) -> str | None:
    """`DATASET:ITEM`, equal for every copy of one upstream item; None where the id does not tell."""
    pattern, dataset = _RULES.get(problem.benchmark, (None, ""))
    found = pattern.match(problem.id.strip().casefold()) if pattern else None
    return f"{dataset}:{found[1]}" if found else None
