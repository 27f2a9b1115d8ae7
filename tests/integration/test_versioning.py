"""DVC and git in real runs: dvc.lock follows the outputs of a stage, and without a repository an error says so."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from ops.config import Pool, Price, Recipe, Versions, Worker
from ops.core.errors import ConfigError, DataError, PodiumError
from ops.core.workspace import Workspace
from ops.versioning import (
    commit_stages,
    compute_revision,
    git_commit,
    push_stages,
    read_recorded_recipe,
    read_stage_version,
    select_data_settings,
    write_settings,
)
from ops.versioning.dvc import find_program
from ops.versioning.settings import DATA_SECTIONS
from pipelines.commands.init import adapt_gitignore, make_dvc_settings

ROOT = Path(__file__).resolve().parents[2]
DVC_YAML = """
stages:
  one:
    cmd: python -m absent
    deps: [code]
    outs: [data/raw]
  two:
    cmd: python -m absent
    deps: [data/raw]
    outs: [data/a.json, {data/b.json: {persist: true}}]
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout.strip()


def dvc(root: Path, *arguments: str) -> str:
    command = [find_program(Workspace(root)), *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, timeout=240).stdout


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A fresh git repository with the DVC configuration that `podium init` writes, and two stages of its own."""
    root = tmp_path / "checkout"
    (root / "code").mkdir(parents=True)
    (root / "code" / "a.py").write_text("1", encoding="utf-8")
    (root / "data" / "raw").mkdir(parents=True)
    (root / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc" / ".gitignore", root / ".dvc")
    (root / "dvc.yaml").write_text(DVC_YAML, encoding="utf-8")
    git(root, "init", "--quiet")
    versions_in_git(root)
    return Workspace(root)


def versions_in_git(root: Path) -> None:
    """Let git track the versions of the data, as `podium init` does in a repository of the user's own."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8")
    (root / ".gitignore").write_text(adapt_gitignore(ignored), encoding="utf-8")
    (root / ".dvc" / "config").write_text(make_dvc_settings(with_git=True), encoding="utf-8")


def write(workspace: Workspace, name: str, text: str) -> None:
    (workspace.data / name).write_text(text, encoding="utf-8")


def test_lock_follows_the_data_there_and_back(workspace: Workspace) -> None:
    write(workspace, "raw/x.jsonl", "{}\n")
    first = commit_stages(workspace, "one")
    before = compute_revision(workspace)
    write(workspace, "raw/x.jsonl", '{"a": 1}\n')
    assert compute_revision(workspace) == before
    second = commit_stages(workspace, "one")
    assert (second != first, compute_revision(workspace) != before) == (True, True)
    write(workspace, "raw/x.jsonl", "{}\n")
    assert (commit_stages(workspace, "one"), compute_revision(workspace)) == (first, before)
    assert read_stage_version(workspace, "one") == first
    shutil.rmtree(workspace.data / "raw")
    dvc(workspace.root, "checkout", "--quiet", "one")
    assert (workspace.data / "raw" / "x.jsonl").read_text(encoding="utf-8") == "{}\n"


def test_several_outputs_give_one_version(workspace: Workspace) -> None:
    write(workspace, "raw/x.jsonl", "{}\n")
    write(workspace, "a.json", "same")
    versions = []
    for text in ("1", "2", "1"):
        write(workspace, "b.json", text)
        versions.append(commit_stages(workspace, "two"))
    assert versions[0] == versions[2] != versions[1]
    assert len(versions[0]) == 32


def test_it_works_from_any_directory_and_leaves_nothing_outside(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    write(workspace, "raw/x.jsonl", "{}\n")
    commit_stages(workspace, "one")
    assert [file.name for file in elsewhere.iterdir()] == ["dvc.yaml"]
    assert (workspace.root / "dvc.lock").is_file()


def test_commits_at_the_same_time_wait_for_each_other(workspace: Workspace) -> None:
    for name in ("raw/x.jsonl", "a.json", "b.json"):
        write(workspace, name, name)
    with ThreadPoolExecutor(3) as threads:
        made = list(threads.map(lambda stage: commit_stages(workspace, stage), ("one", "two", "one"), timeout=240))
    assert made == [read_stage_version(workspace, stage) for stage in ("one", "two", "one")]


def test_a_failed_commit_states_the_reason(workspace: Workspace) -> None:
    with pytest.raises(DataError, match="'nowhere'"):
        commit_stages(workspace, "nowhere")
    shutil.rmtree(workspace.data / "raw")
    with pytest.raises(DataError, match=r"stage 'one': cannot be committed .*Materialize"):
        commit_stages(workspace, "one")
    with pytest.raises(DataError, match=r"dvc\.lock: does not exist"):
        compute_revision(workspace)


@pytest.mark.parametrize(("text", "error", "said"), [
    ("[", ConfigError, r"dvc\.lock: line 1: is not valid YAML"),
    ("stages: 1\n", DataError, r"dvc\.lock: stages: is not a mapping of stages"),
    ("stages: {}\n", DataError, "'one': is not recorded"),
])  # fmt: skip
def test_a_lock_without_the_version_of_a_stage_is_named(
    workspace: Workspace, text: str, error: type[PodiumError], said: str
) -> None:
    (workspace.root / "dvc.lock").write_text(text, encoding="utf-8")
    with pytest.raises(error, match=said):
        read_stage_version(workspace, "one")


@pytest.mark.parametrize("name", ["dvc.yaml", "dvc.lock"])
def test_a_broken_file_of_dvc_is_named(workspace: Workspace, name: str) -> None:
    file = workspace.root / name
    file.write_text("stages: [\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"{re.escape(str(file))}: is invalid .*Correct it"):
        commit_stages(workspace, "one")


def test_no_repository_says_what_to_do_unless_dvc_works_without_git(workspace: Workspace) -> None:
    shutil.rmtree(workspace.root / ".git")
    with pytest.raises(DataError, match=r"is no git repository.*git init"):
        commit_stages(workspace, "one")
    assert git_commit(workspace) == "unknown"
    with (workspace.root / ".dvc" / "config").open("a", encoding="utf-8") as settings:
        settings.write("    no_scm = true\n")
    write(workspace, "raw/x.jsonl", "{}\n")
    assert commit_stages(workspace, "one") == read_stage_version(workspace, "one")


def test_without_dvc_the_files_name_the_data(workspace: Workspace) -> None:
    shutil.rmtree(workspace.root / ".dvc")
    for name in ("raw/x.jsonl", "a.json", "b.json"):
        write(workspace, name, "1")
    first = compute_revision(workspace)
    write(workspace, "b.json", "2")
    assert compute_revision(workspace) != first
    write(workspace, "b.json", "1")
    assert compute_revision(workspace) == first
    (workspace.data / "raw" / "x.jsonl").unlink()
    with pytest.raises(DataError, match="'one': has written nothing"):
        compute_revision(workspace)
    with pytest.raises(DataError, match="has no DVC configuration"):
        commit_stages(workspace, "one")


def test_the_program_of_the_environment_comes_first(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own-dvc"
    own.write_text(f'#!/bin/sh\ntouch {tmp_path}/called\nexec {find_program(workspace)} "$@"\n', encoding="utf-8")
    own.chmod(0o755)
    monkeypatch.setenv("PODIUM_DVC", str(own))
    write(workspace, "raw/x.jsonl", "{}\n")
    commit_stages(workspace, "one")
    assert (tmp_path / "called").is_file()
    monkeypatch.setenv("PODIUM_DVC", str(tmp_path / "absent"))
    with pytest.raises(PodiumError, match=r"PODIUM_DVC: .*absent is not a program.*unset it"):
        commit_stages(workspace, "one")


def test_no_dvc_says_what_to_do(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODIUM_DVC", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    with pytest.raises(PodiumError, match=r"DVC is not installed: .*make venv"):
        commit_stages(workspace, "one")


def test_the_project_itself_runs_without_dvcs_libraries() -> None:
    listed = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    assert listed.isdisjoint({"dvc", "hydra-core", "omegaconf"})
    assert "dvc==" in (ROOT / "constraints-dvc.txt").read_text(encoding="utf-8")


def test_git_has_the_lock_without_data_or_cache_and_its_commit_tells_whether_code_was_changed(
    workspace: Workspace,
) -> None:
    assert git_commit(workspace) == "uncommitted"
    write(workspace, "raw/x.jsonl", "{}\n")
    commit_stages(workspace, "one")
    git(workspace.root, "add", "--all")
    tracked = git(workspace.root, "ls-files").splitlines()
    assert "dvc.lock" in tracked
    assert not [name for name in tracked if name.startswith(("data/raw", ".dvc/cache", ".dvc/tmp", ".podium"))]
    git(workspace.root, "commit", "--quiet", "--message", "first")
    head = git(workspace.root, "rev-parse", "HEAD")
    assert git_commit(workspace) == head
    write(workspace, "raw/x.jsonl", "changed\n")
    commit_stages(workspace, "one")
    assert git_commit(workspace) == head
    (workspace.root / "code" / "a.py").write_text("2", encoding="utf-8")
    assert git_commit(workspace) == f"{head}-dirty"


@pytest.fixture
def recipe() -> Recipe:
    benchmarks: dict[str, object] = {name: {} for name in ("math500", "mmlu", "rlpr", "livecodebench")}
    values = {"name": "other", "pool": "mine", "policy": {"kind": "pretrained", "model": "m"}, "benchmarks": benchmarks}
    return Recipe.model_validate(values)


def test_the_settings_of_the_data_name_the_recipe_and_the_seed(workspace: Workspace, recipe: Recipe) -> None:
    pool = Pool(name="mine", workers=(Worker(name="a", model="local/a"),))
    assert read_recorded_recipe(workspace) == ("quickstart", None)
    file = write_settings(workspace, recipe.model_copy(update={"seed": 3}), pool, "other@mine")
    assert read_recorded_recipe(workspace) == ("other@mine", 3)
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert values["recipe"] == "other@mine" and values["curation"] == recipe.model_dump(mode="json")["curation"]


@pytest.mark.parametrize(
    "text", ["recipe: [", "recipe: a\nrecipe: b", "a: 010", "\x00", "[]", "seed: 1", "recipe: a\nseed: no"]
)
def test_damaged_settings_of_the_data_are_one_line(workspace: Workspace, text: str) -> None:
    (workspace.data / "settings.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PodiumError, match=r"^\S+data/settings\.yaml: .+[.] \S.+$"):
        read_recorded_recipe(workspace)


@pytest.mark.parametrize("with_git", [False, True])
def test_git_ignores_the_lock_in_a_checkout_of_the_project_alone(tmp_path: Path, with_git: bool) -> None:
    git(tmp_path, "init", "--quiet")
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8")
    (tmp_path / ".gitignore").write_text(adapt_gitignore(ignored) if with_git else ignored, encoding="utf-8")
    recipe = tmp_path / "config" / "recipes" / "first-look-openai.yaml"
    recipe.parent.mkdir(parents=True)
    for file in (recipe, tmp_path / "dvc.lock", recipe.with_name("own.yaml")):
        file.touch()
    untracked = set(git(tmp_path, "status", "--porcelain", "--untracked-files=all").split()) - {"??", ".gitignore"}
    mine = {"config/recipes/first-look-openai.yaml", "dvc.lock"} if with_git else set()
    assert untracked == {"config/recipes/own.yaml"} | mine
    assert ("no_scm" in make_dvc_settings(with_git)) is not with_git


def test_the_data_depends_on_the_settings_that_change_it_and_on_no_other(recipe: Recipe) -> None:
    slower = recipe.model_copy(update={"grpo": recipe.grpo.model_copy(update={"learning_rate": 1e-7})})
    fewer = recipe.model_copy(update={"curation": recipe.curation.model_copy(update={"per_domain": 7})})
    pool, patient, costlier = (
        Pool(name="mine", workers=(Worker(name="a", model="local/a", **more),))
        for more in ({}, {"timeout_s": 9}, {"price": Price(input=1, output=1)})
    )
    settings = select_data_settings(recipe, pool)
    assert select_data_settings(slower, pool) == select_data_settings(recipe, patient) == settings
    assert select_data_settings(fewer, pool) != settings
    assert {name for name, value in select_data_settings(recipe, costlier).items() if value != settings[name]} == {
        "prices"
    }


def test_pushed_data_can_be_pulled_and_a_failed_push_keeps_the_data(workspace: Workspace, tmp_path: Path) -> None:
    remote = tmp_path / "store"
    dvc(workspace.root, "remote", "add", "--local", "store", str(remote))
    write(workspace, "raw/x.jsonl", "precious\n")
    commit_stages(workspace, "one")
    push_stages(workspace, Versions(push=True, remote="store"), "one")
    shutil.rmtree(workspace.root / ".dvc" / "cache")
    shutil.rmtree(workspace.data / "raw")
    dvc(workspace.root, "pull", "--remote", "store", "one")
    assert (workspace.data / "raw" / "x.jsonl").read_text(encoding="utf-8") == "precious\n"

    before = compute_revision(workspace)
    shutil.rmtree(remote)
    remote.write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(DataError, match=r"remote 'store': did not accept a copy of one .*dvc push"):
        push_stages(workspace, Versions(push=True, remote="store"), "one")
    with pytest.raises(DataError, match=r"remote 'nowhere': did not accept a copy .*nowhere"):
        push_stages(workspace, Versions(push=True, remote="nowhere"), "one")
    with pytest.raises(DataError, match=r"the default remote: did not accept a copy .*dvc remote add"):
        push_stages(workspace, Versions(push=True), "one")
    assert compute_revision(workspace) == before
    assert (workspace.data / "raw" / "x.jsonl").read_text(encoding="utf-8") == "precious\n"


def test_the_projects_own_stages_name_commands_and_folders_that_exist() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    names = ["settings", "raw_problems", "shortlist", "worker_responses", "worker_profiles", "training_mix"]
    assert list(stages) == names
    outs = [path for stage in stages.values() for out in stage["outs"] for path in _paths(out)]
    for stage in stages.values():
        assert stage["cmd"].startswith("podium data ")  # tests/unit/test_commands.py knows them
        for dep in stage.get("deps", ()):
            assert dep in outs
        for file, sections in (pair for params in stage.get("params", ()) for pair in params.items()):
            assert file in outs
            named = {section.partition(".")[0] for section in sections}
            assert named <= {*DATA_SECTIONS, "grpo", "workers", "prices", "code", "graders"}
    ignored = (ROOT / "data" / ".gitignore").read_text(encoding="utf-8").split()
    assert sorted(ignored) == sorted([*(out.removeprefix("data") for out in outs), "/*.sha256"])


def _paths(out: str | dict[str, object]) -> list[str]:
    return [out] if isinstance(out, str) else list(out)
