"""The data stages. The command line, DVC's stages and Dagster's assets call these functions.

Next to each output lies the key of its inputs: the versions of the files of earlier stages that the stage reads, of its
settings, and of its code. Each function returns None if its output already exists for the same inputs
(`ops.core.once`). Recording an output in DVC is a separate step (`ops.versioning.commit_stages`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ops.benchmarks.problem_files import raw_files, read_problems
from ops.benchmarks.registry import BENCHMARKS
from ops.config import Setup, digest
from ops.core.errors import DataError
from ops.core.installation import resources_folder
from ops.core.once import Key, add_code_version, data_version, false_if_inputs_missing, is_made, make_once
from ops.core.processes import lock_files
from ops.core.response_rows import response_file
from ops.core.workspace import Workspace
from ops.curation.selection import Shortlist
from ops.curation.selector import SELECTORS
from ops.grading.grader import GRADERS
from ops.grading.hidden_tests import are_hidden_tests_intact, hidden_tests_folder
from ops.grading.isolation import program_libraries_in
from ops.grading.version import grader_version
from ops.precaching.stored_profiles import Profiles, WorkerBenchmark
from ops.stages.curation import TrainingMix, materialize_mix, materialize_shortlist
from ops.stages.profiles import materialize_profiles
from ops.stages.raw_problems import RawProblems, materialize_raw, remove_other_files
from ops.stages.responses import list_precached_keys
from ops.versioning.settings import list_stage_modules

STAGES = ("raw_problems", "shortlist", "worker_responses", "worker_profiles", "training_mix")
"""The data stages in order; each may read the files of those before it."""


def data_files(workspace: Workspace, *stages: str) -> list[Path]:
    """Return the files and folders that the named data stages write; without a name, those of all stages."""
    data = workspace.data
    written = {
        "raw_problems": [data / "raw"],
        "shortlist": [data / "shortlist.jsonl", data / "contamination.json"],
        "worker_responses": [data / "responses"],
        "worker_profiles": [data / "profiles.json"],
        "training_mix": [data / "training_mix.jsonl", data / "data_card.md"],
    }
    return [path for stage in stages or STAGES for path in written[stage]]


def load_raw_once(setup: Setup, benchmark: str, *, force: bool = False) -> RawProblems | None:
    """Load a benchmark into `data/raw` with `materialize_raw`, unless its files are up to date.

    Returns None if nothing had to be done. With `force` the files are made in any case. Raises the errors of
    `materialize_raw`.
    """
    files = list(raw_files(setup.workspace, setup.recipe, benchmark).values())
    with lock_files(setup.workspace, *files):
        force = force or not _has_hidden_tests(setup, benchmark, files)
        made = make_once(files, _raw_key(setup, benchmark), lambda: materialize_raw(setup, benchmark), always=force)
        if made is None:
            remove_other_files(setup.workspace, setup.recipe, benchmark, files)
        return made


def _raw_key(setup: Setup, benchmark: str) -> Key:
    source, entry = setup.recipe.benchmarks[benchmark], BENCHMARKS[benchmark]
    grader, root = entry.grader_name(source), setup.workspace.root
    programs = (
        program_libraries_in(setup.recipe.grading.environments, root, benchmark)
        if GRADERS[grader].runs_programs
        else None
    )
    key = {
        "source": digest(source.model_dump(mode="json")),
        "seed": str(setup.recipe.seed),
        "grader": f"{grader}:{grader_version(grader, programs)}",
    }
    if source.source == "file":
        key["files"] = data_version(*(root / name for split in ("train", "test") for name in source.files(split)))
    if source.source == "embedded":
        key["files"] = data_version(resources_folder() / "data" / "knowledge")
    one = setup.recipe.model_copy(update={"benchmarks": {benchmark: source}})
    return add_code_version(key, *list_stage_modules(one)["raw_problems"])


def _has_hidden_tests(setup: Setup, benchmark: str, files: list[Path]) -> bool:
    if not BENCHMARKS[benchmark].has_hidden_tests:
        return True
    try:
        problems = [problem for file in files for problem in read_problems(file)]
    except DataError:
        return False
    return are_hidden_tests_intact(hidden_tests_folder(setup.workspace.root), problems)


def make_shortlist_once(setup: Setup, *, force: bool = False) -> Shortlist | None:
    """Choose the shortlist with `materialize_shortlist`, unless it is up to date.

    Returns None if nothing had to be done. With `force` it is made in any case. Raises the errors of
    `materialize_shortlist`.
    """
    files = data_files(setup.workspace, "shortlist")
    key = {
        "problems": data_version(*_list_raw_files(setup)),
        "settings": _settings_key(setup, "benchmarks", "curation"),
        "seed": str(setup.recipe.seed),
    }
    code = add_code_version(key, *list_stage_modules(setup.recipe)["shortlist"])
    with lock_files(setup.workspace, *files):
        return make_once(files, code, lambda: materialize_shortlist(setup), always=force)


@false_if_inputs_missing
def are_precached(setup: Setup, cells: list[WorkerBenchmark] | None = None) -> bool:
    """Return whether the responses of these workers to these benchmarks are stored and would come out the same.

    `cells` are pairs of worker and benchmark; None means all pairs. `materialize_responses` collects the missing ones.
    """
    folder, keys = setup.workspace.data / "responses", list_precached_keys(setup, cells)
    if setup.recipe.replay is not None:
        return all(response_file(folder, *cell).is_file() for cell in keys)
    return all(is_made(response_file(folder, *cell), key) for cell, key in keys.items())


def make_profiles_once(setup: Setup, *, force: bool = False) -> Profiles | None:
    """Compute the workers' profiles with `materialize_profiles`, unless they are up to date.

    Returns None if nothing had to be done. With `force` they are made in any case. Raises the errors of
    `materialize_profiles`.
    """
    files = data_files(setup.workspace, "worker_profiles")
    key = {
        "responses": data_version(setup.workspace.data / "responses"),
        "candidates": data_version(setup.workspace.data / "shortlist.jsonl"),
        "workers": setup.pool.answers_key,
        "prices": setup.pool.prices_key,
        "settings": digest([setup.recipe.grpo.rollouts_per_question, setup.recipe.curation.rescued]),
    }
    code = add_code_version(key, *list_stage_modules(setup.recipe)["worker_profiles"])
    with lock_files(setup.workspace, *files):
        return make_once(files, code, lambda: materialize_profiles(setup), always=force)


def make_mix_once(setup: Setup, *, force: bool = False) -> TrainingMix | None:
    """Choose the training mix with `materialize_mix`, unless it is up to date.

    Returns None if nothing had to be done. With `force` it is made in any case. Raises the errors of `materialize_mix`.
    """
    data, files = setup.workspace.data, data_files(setup.workspace, "training_mix")
    key = {
        "problems": data_version(*_list_raw_files(setup)),
        "candidates": data_version(*data_files(setup.workspace, "shortlist")),
        "workers": digest(setup.pool.names),
        "settings": digest([_settings_key(setup, "benchmarks", "curation"), setup.recipe.grpo.rollouts_per_question]),
        "seed": str(setup.recipe.seed),
    }
    if SELECTORS[setup.recipe.curation.selector].reads_responses:
        key["responses"] = data_version(data / "responses")
    code = add_code_version(key, *list_stage_modules(setup.recipe)["training_mix"])
    with lock_files(setup.workspace, *files):
        return make_once(files, code, lambda: materialize_mix(setup), always=force)


def _list_raw_files(setup: Setup) -> list[Path]:
    workspace, recipe = setup.workspace, setup.recipe
    return [file for name in recipe.benchmarks for file in raw_files(workspace, recipe, name).values()]


def _settings_key(setup: Setup, *sections: str) -> str:
    settings: dict[str, Any] = setup.recipe.model_dump(mode="json", include=set(sections))
    return digest(settings)
