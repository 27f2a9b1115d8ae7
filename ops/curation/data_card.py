"""The data card, which states the composition of the training mix and the reasons for it, in words and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from ops.benchmarks.registry import BENCHMARKS
from ops.config import Recipe
from ops.core.documents import format_markdown_table
from ops.core.problem import Problem
from ops.curation.diverse_choice import stratum
from ops.curation.selector import SELECTORS, SelectionEvidence
from ops.curation.training_signal import Tallies, count_agreements

HISTOGRAM_BINS = 5
"""The number of columns of a histogram of weights from 0 to 1."""


class Selection(NamedTuple):
    """The candidates, the shortlist and the chosen problems, with the selector's weights (0 to 1) if it has any."""

    candidates: Sequence[Problem]
    shortlisted: Sequence[Problem]
    mix: Sequence[Problem]
    weights: Mapping[str, float]


def render_data_card(
    selection: Selection, recipe: Recipe, contamination: Mapping[str, Any], tallies: Tallies | None = None
) -> str:
    """Return the data card in Markdown.

    It states the composition, the coverage, the selector's weights, the agreement of the workers, removed candidates,
    licences and caveats.
    """
    mix = selection.mix
    parts = [
        f"# Training mix of the recipe `{recipe.name}`",
        _describe_selection(mix, recipe),
        SELECTORS[recipe.curation.selector].description,
        "## Composition",
        _tabulate_composition(mix, recipe),
        "## Coverage",
        _tabulate_coverage(selection),
        *_describe_weights(selection, recipe),
        "## How the workers agree",
        _tabulate_agreement(mix, tallies),
        "## Removed before choosing",
        _tabulate_removed(contamination),
        "## By family or subject",
        _tabulate_kinds(selection),
        "## By level",
        _tabulate_levels(selection),
        "## Sources, licences, cautions",
        _list_sources(mix, recipe),
    ]
    return "\n\n".join(parts) + "\n"


def _describe_selection(mix: Sequence[Problem], recipe: Recipe) -> str:
    settings = recipe.curation
    chosen = f"{len(mix)} problems, {settings.per_domain} a domain, seed {recipe.seed}"
    return f"{chosen}; selector: {settings.selector}, shortlist of {settings.shortlist_factor:g} × as many."


def _kind_of(problem: Problem) -> str:
    return problem.family or problem.subject or "(none stated)"


def _tabulate_composition(mix: Sequence[Problem], recipe: Recipe) -> str:
    counts = Counter((p.domain, p.benchmark, p.grader) for p in mix)
    words = {
        key: sum(len(p.question.split()) for p in mix if (p.domain, p.benchmark, p.grader) == key) / count
        for key, count in counts.items()
    }
    return format_markdown_table(
        ("domain", "benchmark", "grader", "source", "problems", "mean words"),
        [(*key, recipe.benchmarks[key[1]].source, count, f"{words[key]:.0f}") for key, count in sorted(counts.items())],
    )


def _tabulate_coverage(choice: Selection) -> str:
    rows = []
    for domain in sorted({problem.domain for problem in choice.mix}):
        stages = [[p for p in problems if p.domain == domain] for problems in choice[:3]]
        rows.append(
            (
                domain,
                *(f"{len(problems)} in {len({stratum(p) for p in problems})}" for problems in stages),
                *(f"{fmean(len(p.question.split()) for p in problems):.0f}" for problems in stages if problems),
            )
        )
    head = ("domain", "candidates", "shortlist", "mix", "mean words: candidates", "shortlist", "mix")
    return f"Problems, in how many strata (family or subject, and level).\n\n{format_markdown_table(head, rows)}"


def _describe_weights(choice: Selection, recipe: Recipe) -> list[str]:
    """Return the section with the distribution of the selector's weights in the shortlist and in the mix, if it has
    weights."""
    weighing = SELECTORS[recipe.curation.selector].weighting
    if weighing is None or not choice.weights:
        return []
    words = weighing.explain(
        SelectionEvidence(recipe.curation, recipe.seed, rollouts_per_question=recipe.grpo.rollouts_per_question)
    )
    edges = [f"{place / HISTOGRAM_BINS:.1f}-{(place + 1) / HISTOGRAM_BINS:.1f}" for place in range(HISTOGRAM_BINS)]
    rows = []
    for domain in sorted({problem.domain for problem in choice.mix}):
        for stage, problems in (("shortlist", choice.shortlisted), ("mix", choice.mix)):
            weights = [choice.weights[p.key] for p in problems if p.domain == domain]
            counts = Counter(min(int(value * HISTOGRAM_BINS), HISTOGRAM_BINS - 1) for value in weights)
            rows.append((domain, stage, f"{fmean(weights):.3f}", *(counts[place] for place in range(HISTOGRAM_BINS))))
    return [f"## {weighing.title}", f"{words}\n\n{format_markdown_table(('domain', 'of', 'mean', *edges), rows)}"]


def _tabulate_kinds(choice: Selection) -> str:
    counters = [Counter((p.domain, _kind_of(p)) for p in problems) for problems in choice[:3]]
    rows = [(*key, *(counter[key] for counter in counters)) for key in sorted(counters[0].keys() | counters[2].keys())]
    return format_markdown_table(("domain", "family or subject", "candidates", "shortlist", "mix"), rows)


def _tabulate_levels(choice: Selection) -> str:
    counters = [Counter((p.domain, p.level or "(none stated)") for p in problems) for problems in choice[:3]]
    rows = [(*key, *(counter[key] for counter in counters)) for key in sorted(counters[0].keys() | counters[2].keys())]
    return format_markdown_table(("domain", "level", "candidates", "shortlist", "mix"), rows)


def _tabulate_agreement(mix: Sequence[Problem], tallies: Tallies | None) -> str:
    if not tallies:
        return "No responses were used."
    rows = []
    for domain in sorted({problem.domain for problem in mix}):
        counts = count_agreements([p for p in mix if p.domain == domain], tallies)
        rows.append((domain, counts["all"], counts["some"], counts["none"], counts["unmeasured"]))
    return format_markdown_table(("domain", "all solve it", "some", "none alone", "not measured"), rows)


def _tabulate_removed(contamination: Mapping[str, Any]) -> str:
    summary = (
        f"{contamination['kept']} of {contamination['candidates']} candidates were kept; they were compared "
        f"with {contamination['evaluation_questions']} evaluation questions and with each other "
        f"(same upstream item, same text, word 5-grams with a Jaccard similarity of at least "
        f"{contamination['threshold']}{', or a light rewording' if contamination['threshold'] < 1 else ''}). "
        "`contamination.json` names each pair."
    )
    rows = [
        tuple(row[column] for column in ("benchmark", "cause", "kind", "count")) for row in contamination["removed"]
    ]
    return f"{summary}\n\n{format_markdown_table(('benchmark', 'cause', 'kind', 'removed'), rows)}" if rows else summary


def _list_sources(mix: Sequence[Problem], recipe: Recipe) -> str:
    parts = []
    for name in sorted({problem.benchmark for problem in mix}):
        entry, source = BENCHMARKS[name], recipe.benchmarks[name]
        if source.source == "embedded":
            parts.append(f"- **{name}**: generated by the embedded families; not the real benchmark.")
            continue
        upstream = sorted({problem.source for problem in mix if problem.benchmark == name and problem.source})
        rows = f"Rows from {', '.join(upstream) or 'a file'}"
        parts.append(f"- **{name}**: {entry.citation}. Licence: {entry.licence}. {rows}.")
        parts += [f"  - {caution}" for caution in entry.cautions]
    return "\n".join(parts)
