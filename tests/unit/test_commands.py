"""`podium`: its help, its imports, its errors, its shell completion, and the files of `podium init`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ops.config import Setup, load_recipe
from ops.core.errors import PodiumError
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.planning.estimate import Range
from pipelines import confirmation
from pipelines.commands import init
from pipelines.commands.main import SECTIONS
from pipelines.commands.main import podium as command
from tests import releases
from tests.command import PODIUM, podium, tried

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "dagster", "litellm", "mlflow", "transformers", "great_expectations", "pandas", "scipy", "sympy"}
PAGES = sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))
CALLERS = ["Makefile", "dvc.yaml", "README.md", *PAGES]
TEXT = 'model_id = [0, 3]\nsubtasks = ["Solve it.", "Check it."]\naccess_list = [[], ["all"]]\n'


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the words of every command and group below `group`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*path, name)
        if isinstance(below := group.get_command(context, name), click.Group):
            yield from every_command(below, (*path, name))


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty and in no workspace."""
    monkeypatch.delenv("PODIUM_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    assert podium("init", str(root)) == 0
    return root


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate process, outside any workspace unless `folder` is one."""
    return subprocess.run(
        [*PODIUM, *arguments], cwd=folder, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip


def test_the_help_lists_every_command_with_a_whole_line() -> None:
    text = tried("--help", COLUMNS="80").output
    for heading, names in SECTIONS.items():
        assert f"{heading}:\n" in text
        for name in names:
            assert re.search(rf"^  {name} +[A-Z].*\.$", text, re.MULTILINE), name


@pytest.mark.parametrize("words", sorted(every_command(command)), ids=" ".join)
def test_every_command_says_what_it_does(words: tuple[str, ...]) -> None:
    shown = tried(*words, "--help")
    assert shown.exit_code == 0
    assert shown.output.startswith(f"Usage: podium {' '.join(words)} ")
    assert "..." not in shown.output.replace("]...", ""), "a summary is cut short"


def test_neither_help_nor_a_plan_imports_anything_heavy() -> None:
    code = (
        "import sys\nfrom pipelines.commands.main import podium\n"
        "for words in (['--help'], ['plan', 'quickstart'], ['pools', 'diff', '--help']):\n"
        f"    podium(words, standalone_mode=False)\nprint('heavy:', sorted({HEAVY!r} & set(sys.modules)))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True, timeout=100)
    assert printed.splitlines()[-1] == "heavy: []"


@pytest.mark.long
@pytest.mark.timeout(100)
def test_commands_that_read_the_registry_load_neither_a_policy_nor_pandas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = releases.checkout(tmp_path, releases.shared_store())
    releases.version(workspace, verdict="not judged")
    unread = {"pandas", "pyarrow", "scipy", "sklearn", "ops.conductor.policy", "ops.evaluation.runner"}
    code = (
        "import os, sys\nfrom pipelines import script\n"
        "def leave(code, end=os._exit):\n"
        f"    print('loaded:', [name for name in {sorted(unread)!r} if sys.modules.get(name)], file=sys.stderr)\n"
        "    sys.stderr.flush()\n    end(code)\n"
        "os._exit = leave\nscript.main()"
    )
    for word, exit_code, said in (("status", 0, "Challenger  version 1 not judged"), ("verdict", 3, "version 1 (")):
        done = subprocess.run(
            [sys.executable, "-c", code, word], cwd=ROOT, env={**os.environ, "PODIUM_ROOT": str(tmp_path)},
            capture_output=True, text=True, check=False, timeout=90,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (exit_code, "loaded: []\n")
        assert said in done.stdout


def test_an_error_is_one_line_and_exit_code_1(nowhere: Path) -> None:
    done = run("plan", "absent", folder=nowhere)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: .*absent\.yaml: does not exist\. .*\n", done.stderr)


@pytest.mark.parametrize("words", ["ledger", "ask Why?", "rollback --reason why", "data raw", "dev"])
def test_outside_a_workspace_a_command_says_so(nowhere: Path, words: str) -> None:
    done = tried(*words.split())
    assert done.exit_code == 1
    assert re.fullmatch(r"error: .*is not inside a Podium workspace.*\n", done.stderr)


def test_precaching_is_estimated_before_any_problem_is_chosen(tmp_path: Path) -> None:
    assert podium("init", str(tmp_path)) == 0
    done = tried("data", "responses", "quickstart", "--dry-run", PODIUM_ROOT=str(tmp_path))
    [line] = done.stdout.splitlines()
    assert done.exit_code == 0 and line.startswith("10,800 calls: about $1.94, up to $")
    assert "data/shortlist.jsonl is missing" in line and "podium data shortlist quickstart" in line
    assert not (tmp_path / ".podium" / "cache").exists(), "an estimate makes no cache"


def test_an_unknown_study_is_refused_with_those_that_there_are() -> None:
    listed = [line.partition(" ")[0] for line in tried("study").stdout.splitlines()]
    assert {"one_worker", "seeds", "rounds"} < {*listed}
    unknown = tried("study", "one_wrker")
    suggestion = "Did you mean one_worker? `podium study` lists all studies"
    assert unknown.stderr == f"error: there is no study 'one_wrker'. {suggestion}\n"
    other = tried("study", "ablations", "--recipe", "paper")
    assert "is of recipe 'quickstart', not 'paper'" in other.stderr
    assert (unknown.exit_code, other.exit_code) == (1, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("evalute", "Did you mean 'evaluate'?"),
        ("init --yes", "--yes belongs to --pool"),
        ("init --dry-run", "--dry-run belongs to --pool"),
    ],
)
def test_a_mistake_in_the_words_of_a_command_is_explained(nowhere: Path, words: str, said: str) -> None:
    done = tried(*words.split())
    assert done.exit_code == 2 and said in done.stderr
    assert list(nowhere.iterdir()) == []


def test_a_shell_completes_commands_recipes_and_pools(tmp_path: Path) -> None:
    for shell in ("zsh", "fish"):
        assert "_PODIUM_COMPLETE" in run("completion", shell, folder=tmp_path).stdout
    for words, last, expected in (
        ("podium ", 1, {"run", "rollback", "pools"}),
        ("podium data sh", 2, {"shortlist"}),
        ("podium plan ", 2, {"paper", "quickstart", "files"}),
        ("podium pools show o", 3, {"open"}),
    ):
        completion = run(folder=tmp_path, _PODIUM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(last))
        assert {line.partition(",")[2] for line in completion.stdout.splitlines()} >= expected


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="bash is absent")
def test_bash_takes_the_completion_script(tmp_path: Path) -> None:
    script = run("completion", "bash", folder=tmp_path)
    assert "complete -o nosort -F" in script.stdout, script.stderr
    subprocess.run(["/bin/bash", "-n"], input=script.stdout, text=True, check=True, timeout=240)


def test_a_rendered_workflow(tmp_path: Path) -> None:
    file = tmp_path / "completion.txt"
    render = ("workflow", "render", str(file))
    file.write_text(TEXT, encoding="utf-8")
    assert "algebraist" in tried(*render).stdout
    assert tried(*render, "--as", "markdown", "--pool", "open").stdout.startswith("| step")
    file.write_text(TEXT.replace("3", "9"), encoding="utf-8")
    refused = tried(*render)
    assert refused.exit_code == 1 and refused.stderr.startswith(f"error: {file}: ")


def test_init_makes_a_workspace_and_overwrites_nothing(tmp_path: Path) -> None:
    assert podium("init", str(tmp_path)) == 0
    recipe = tmp_path / "config" / "recipes" / "quickstart.yaml"
    assert recipe.read_bytes() == (ROOT / "config" / "recipes" / "quickstart.yaml").read_bytes()
    assert (tmp_path / "data" / "few_shots" / "mixed.yaml").is_file()
    for based in ("paper-code", "paper-3b", "paper-server", "paper-async", "open"):
        assert load_recipe(tmp_path / "config", based) == load_recipe(ROOT / "config", based)
    recipe.write_text("mine", encoding="utf-8")
    (tmp_path / "dvc.yaml").unlink()
    assert podium("init", str(tmp_path)) == 0
    assert recipe.read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "dvc.yaml").read_bytes() == (ROOT / "dvc.yaml").read_bytes()


def test_a_checkout_is_not_laid_out_again() -> None:
    done = tried("init", str(resources_folder()))
    assert done.exit_code == 1 and "is a checkout" in done.stderr


def test_a_run_in_a_folder_with_other_files_lays_out_nothing(nowhere: Path) -> None:
    (nowhere / "thesis.txt").touch()
    done = tried("run")
    assert done.exit_code == 1 and "podium init" in done.stderr
    assert [file.name for file in nowhere.iterdir()] == ["thesis.txt"]
    (nowhere / "thesis.txt").unlink()
    (nowhere / ".venv").mkdir()
    assert init.open_or_create_workspace() == Workspace(nowhere)


@pytest.mark.parametrize("name", CALLERS)
def test_every_call_of_podium_names_an_existing_command(name: str) -> None:
    known = set(every_command(command))
    text = (ROOT / name).read_text(encoding="utf-8")
    called = re.findall(r"(?:^|cmd: |/|`|\$ |\()podium ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", text, re.MULTILINE)
    assert called or name.endswith(".md")
    for first, second in called:
        group = any(words[0] == first and len(words) == 2 for words in known)
        assert ((first, second) if group and second else (first,)) in known


@pytest.mark.parametrize(("name", "job"), [("run", "lifecycle"), ("train", "train"), ("evaluate", "evaluate")])
def test_every_stage_runner_names_an_existing_job(name: str, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines import run
    from pipelines.lifecycle import JOBS

    jobs: list[str] = []
    monkeypatch.setattr(run, "run_job", lambda workspace, recipe, seed, job, full, yes: jobs.append(job))
    assert podium(name) == 0
    assert jobs == [job] and job in JOBS


READ_ONLY = (
    "alerts list", "baselines", "cache inspect", "config validate", "data benchmarks", "doctor", "ledger",
    "plan quickstart", "pools diff quickstart open", "pools list", "pools show openai", "recipes list",
    "recipes show paper", "runs list", "status", "study",
)  # fmt: skip
"""Commands that need no finished run; tests/integration/test_lifecycle.py has the others."""


@pytest.mark.parametrize("words", READ_ONLY)
def test_a_reading_command_prints_one_json_document(words: str, laid_out: Path) -> None:
    printed = tried(*words.split(), "--json", PODIUM_ROOT=str(laid_out), DAGSTER_HOME="").stdout
    assert isinstance(json.loads(printed), list | dict)


def test_every_command_that_lists_or_shows_takes_json() -> None:
    context = click.Context(command)
    for words in every_command(command):
        found: click.Command = command
        for word in words:
            assert isinstance(found, click.Group)
            found = found.get_command(context, word) or found
        if words[-1] in {"list", "show", "inspect", "status", "verdict", "ledger", "plan", "forecast"}:
            assert any("--json" in each.opts for each in found.params), words


@pytest.mark.parametrize(
    "words",
    ["init", "run", "train", "evaluate", "study", "team start", "pools ping", "data responses", "data gold", "retrain",
     "drift", "reproduce", "promote", "rollback"],
)  # fmt: skip
def test_every_command_that_spends_money_or_moves_an_alias_has_dry_run_and_yes(words: str) -> None:
    shown = tried(*words.split(), "--help").output
    assert "--dry-run" in shown and "--yes" in shown


def test_dry_runs_say_what_is_spent_and_do_nothing(laid_out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(laid_out.rglob("*"))
    done = tried("pools", "ping", "openai", "--dry-run", PODIUM_ROOT=str(laid_out), OPENAI_API_KEY="a-key")
    said = r"One call to each worker of openai costs \$0\.\d+ at most\. Nothing was done\n"
    assert done.exit_code == 0 and re.fullmatch(said, done.stdout)
    confirmation.show_spending(Setup.read(Workspace(laid_out), "first-look"), Range.exactly(2.0))
    about = "calls paid workers for about $2.00, never for more than $3.00 (budget.run_usd). Nothing was done"
    confirmation.show_spending(Setup.read(Workspace(laid_out), "quickstart"))
    nothing = "Recipe quickstart makes no call that costs money. Nothing was done"
    assert capsys.readouterr().out == f"Recipe first-look {about}\n{nothing}\n"
    assert sorted(laid_out.rglob("*")) == before


def test_the_dry_run_of_a_first_look_writes_nothing(tmp_path: Path) -> None:
    done = tried("init", str(tmp_path), "--pool", "openai", "--dry-run", OPENAI_API_KEY="a-key")
    assert done.exit_code == 0 and "gpt-5.6-luna writes each workflow" in done.stdout and "ready" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_paid_workers_are_not_called_before_a_person_agrees(laid_out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup.read(Workspace(laid_out), "paper")
    confirmation.confirm_run(setup, yes=True)
    confirmation.confirm_run(Setup.read(Workspace(laid_out), "quickstart"), yes=False)  # embedded workers cost nothing
    confirmation.confirm_spending(setup, False, Range.exactly(0.0))  # nothing is left to pay
    about = r"Recipe paper calls paid workers for about \$2\.00, never for more than \$20,000\.00 \(budget\.run_usd\)"
    with pytest.raises(PodiumError, match=f"{about}, and no person can be asked here. Add --yes to agree$"):
        confirmation.confirm_spending(setup, False, Range.exactly(2.0))
    with pytest.raises(PodiumError, match=r"for about \$[1-9][\d,]+\.\d\d, never"):
        confirmation.confirm_run(setup, yes=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer in ("n", ""):
        monkeypatch.setattr(click.termui, "visible_prompt_func", lambda prompt, answer=answer: answer)
        with pytest.raises(click.exceptions.Exit):
            confirmation.confirm_spending(setup, yes=False)
    monkeypatch.setattr(click.termui, "visible_prompt_func", lambda prompt: "y")
    confirmation.confirm_spending(setup, yes=False)


def test_a_dry_run_prints_the_plan_and_writes_nothing(nowhere: Path) -> None:
    done = tried("run", "quickstart", "--dry-run")
    assert done.exit_code in (0, 1)  # 1: this machine lacks something
    assert "calls and USD still to come" in done.stdout and not list(nowhere.iterdir())


def test_every_mistake_of_the_configuration_is_one_line(tmp_path: Path) -> None:
    assert podium("init", str(tmp_path)) == 0
    right = tried("config", "validate", PODIUM_ROOT=str(tmp_path))
    assert right.exit_code == 0 and re.fullmatch(r"\d+ files checked, 0 with a mistake", right.stdout.splitlines()[-1])
    for name, text in (("promotion", "confidence: high\n"), ("recipes/mine", "bse: quickstart\n"), ("pools/own", "x")):
        (tmp_path / "config" / f"{name}.yaml").write_text(text, encoding="utf-8")
    done = tried("config", "validate", PODIUM_ROOT=str(tmp_path))
    *mistakes, last = done.stdout.splitlines()
    assert done.exit_code == 1 and last.endswith("files checked, 3 with a mistake")
    for name in ("promotion.yaml", "mine.yaml", "own.yaml"):
        assert sum(line.startswith("error: ") and name in line for line in mistakes) == 1
