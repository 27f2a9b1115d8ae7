"""The data checks of the stages. A check that passed is not repeated while the checked files stay the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ops.config import Setup, digest
from ops.core.checked_files import read_json, set_aside_if_damaged, write_json
from ops.core.once import INCOMPLETE, Key, add_code_version, data_version, make_once
from ops.core.processes import lock_files
from ops.grading import find_available_isolation
from ops.grading.grader import GRADERS
from ops.grading.isolation import podium_libraries, program_libraries_in
from ops.grading.version import grader_version, hash_installed_libraries
from ops.quality import QualityReport, stage_checks
from ops.stages.data import STAGES, data_files

Check = Callable[[Setup, Sequence[str]], QualityReport]
CHECKS: dict[str, tuple[str, Check]] = {
    "well_formed": ("raw_problems", stage_checks.check_raw_problems),
    "gold_scores_one": ("raw_problems", stage_checks.check_raw_gold),
    "evaluation_programs_pass": ("raw_problems", stage_checks.check_evaluation_programs),
    "fit_to_ask_about": ("shortlist", lambda setup, _: stage_checks.check_shortlist(setup)),
    "shortlist_gold": ("shortlist", lambda setup, _: stage_checks.check_shortlist_gold(setup.workspace)),
    "whole_and_in_range": ("worker_responses", lambda setup, _: stage_checks.check_worker_responses(setup)),
    "fit_to_train_on": ("training_mix", lambda setup, _: stage_checks.check_training_mix(setup)),
    "training_mix_gold": ("training_mix", lambda setup, _: stage_checks.check_training_mix_gold(setup.workspace)),
}
"""Check → the data stage whose files it checks, and the function that checks them, given the benchmarks in data/raw."""


def check_once(
    setup: Setup, name: str, benchmarks: Sequence[str] | None = None, *, force: bool = False
) -> tuple[QualityReport, bool]:
    """Run a data check unless it already passed on the same files; return its report, and whether it ran now.

    `name` is a key of `CHECKS`. `benchmarks` are those whose files in `data/raw` must exist; None means all benchmarks
    of the recipe. With `force` the check runs in any case. Raises `DataError`.
    """
    stage, check = CHECKS[name]
    asked = list(setup.recipe.benchmarks) if benchmarks is None else list(benchmarks)
    file = setup.workspace.state / "checks" / f"{name}.json"
    key = _key(setup, stage, asked)
    with lock_files(setup.workspace, file):
        set_aside_if_damaged(file, "The check is made again")
        force = force or _page_is_missing(file)
        report = make_once([file], key, lambda: _store_report(check(setup, asked), file, key), always=force)
        return (_read_report(file), False) if report is None else (report, True)


def _key(setup: Setup, stage: str, benchmarks: Sequence[str]) -> Key:
    recipe, root = setup.recipe, setup.workspace.root
    before = [each for each in STAGES[: STAGES.index(stage) + 1] if each != "worker_profiles"]
    programs = [
        podium_libraries(),
        *(program_libraries_in(recipe.grading.environments, root, name) for name in recipe.benchmarks),
    ]
    sections = {"benchmarks", "curation", "evaluation", "precaching"}
    key = {
        "files": data_version(*data_files(setup.workspace, *before)),
        "settings": digest(recipe.model_dump(mode="json", include=sections)),
        "seed": str(recipe.seed),
        "workers": digest(setup.pool.names),
        "benchmarks": " ".join(benchmarks),
        "graders": digest([grader_version(name) for name in sorted(GRADERS)]),
        "programs": digest(
            [sys.version, find_available_isolation(), [hash_installed_libraries(each) for each in programs]]
        ),
    }
    return add_code_version(key, "ops.quality.stage_checks")


def _store_report(report: QualityReport, file: Path, key: Key) -> QualityReport:
    """Store a report. The file of a failed check counts as incomplete, so that the next run repeats the check."""
    facts = {**asdict(report), "page": report.page and str(report.page)}
    write_json(file, facts, key if report.success else {**key, INCOMPLETE: "it did not pass"})
    return report


def _read_report(file: Path) -> QualityReport:
    facts = read_json(file, "Make the check again")
    return QualityReport(**{**facts, "page": facts["page"] and Path(facts["page"])})


def _page_is_missing(file: Path) -> bool:
    """Return whether the Data Docs page that the stored report refers to no longer exists."""
    if not file.is_file():
        return False
    page = _read_report(file).page
    return page is not None and not page.exists()
