"""The gold report: per set of problems, how many gold answers score 1, and every miss with its reason."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ops.curation.card import markdown_table
from ops.quality.gold import GoldGrade

_ABSENT = re.compile(r"No module named '([\w.]+)'")
SHOWN_REASON = 160
"""Characters of a reason that are shown."""


class Golds(NamedTuple):
    """One set of problems: its verdicts, how many of its rows were no problems, and how long grading took (s).

    `graded_on`: which tests its scores are of (`benchmarks.registry.graded_on`).
    """

    verdicts: Sequence[GoldGrade]
    malformed: int = 0
    seconds: float = 0.0
    graded_on: str = ""

    @property
    def given(self) -> list[GoldGrade]:
        """Those with a gold answer to grade."""
        return [verdict for verdict in self.verdicts if verdict.score is not None]

    @property
    def missed(self) -> list[GoldGrade]:
        return [verdict for verdict in self.given if verdict.score != 1]

    @property
    def share(self) -> float:
        """Of the gold answers, how many score 1; 1 where there is none."""
        return 1 - len(self.missed) / len(self.given) if self.given else 1.0


def gold_report(sets: Mapping[str, Golds], sandbox: str) -> str:
    """A table of the sets, then the misses of each, in markdown. `sandbox` says where programs ran."""
    head = ("set", "problems", "malformed rows", "with a gold answer", "score 1", "share", "s")
    rows = [
        (
            name,
            len(golds.verdicts),
            golds.malformed,
            len(golds.given),
            len(golds.given) - len(golds.missed),
            f"{100 * golds.share:.2f} %" if golds.given else "–",
            f"{golds.seconds:.0f}",
        )
        for name, golds in sets.items()
    ]
    parts = [markdown_table(head, rows), f"Programs ran in the sandbox `{sandbox}`."]
    parts += [f"{name} is graded on {golds.graded_on}." for name, golds in sets.items() if golds.graded_on]
    parts += [_misses(name, golds.missed) for name, golds in sets.items() if golds.missed]
    return "\n\n".join(parts) + "\n"


def _misses(name: str, missed: Sequence[GoldGrade]) -> str:
    absent: dict[str, list[str]] = defaultdict(list)
    others = []
    for verdict in missed:
        if match := _ABSENT.search(verdict.reason):
            absent[match.group(1).partition(".")[0]].append(_id(verdict))
        else:
            others.append((_id(verdict), f"`{verdict.reason[:SHOWN_REASON]}`"))
    lines = [f"Missed in {name}:"]
    if absent:
        ranked = sorted(absent.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        lines.append(markdown_table(("library that is not installed", "problems", "ids"), [
            (f"`{library}`", len(ids), ", ".join(ids)) for library, ids in ranked
        ]))  # fmt: skip
    if others:
        lines.append(markdown_table(("id", "why"), others))
    return "\n\n".join(lines)


def _id(verdict: GoldGrade) -> str:
    return verdict.row.partition("/")[2]
