"""The wheel alone in an empty folder, without git and without DVC; and a checkout without the mlflow library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pydantic
import pytest

from ops.core.workspace import Workspace
from ops.release import registry
from tests.integration.checkouts import LENIENT, SHORT, changed, configure, sizes

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip")

RECIPE = changed(SHORT, name="mini", benchmarks=sizes(20, 3), curation={"per_domain": 4})
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources, so that it contains no earlier build."""
    folder = tmp_path_factory.mktemp("wheel")
    keep_out = shutil.ignore_patterns(".git", ".venv*", ".podium", "__pycache__", ".*_cache", "tests", "build", "raw")
    shutil.copytree(ROOT, folder / "source", ignore=keep_out)
    alone = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run([*PIP, "wheel", *alone, "./source", "--wheel-dir", str(folder)], cwd=folder, check=True, timeout=720)
    [file] = folder.glob("podium_conductor-*.whl")
    return file


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`podium` of an environment with the wheel and this environment's libraries, without its Podium."""
    home = tmp_path_factory.mktemp("environment") / "env"
    venv.create(home, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    libraries = site.with_name("libraries")
    libraries.mkdir()
    for folder in (Path(entry) for entry in sys.path if entry.endswith("site-packages")):
        for file in folder.iterdir():
            if file.suffix != ".pth" and "podium" not in file.name and not (libraries / file.name).exists():
                (libraries / file.name).symlink_to(file)
    (site / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
    python = str(home / "bin" / "python")
    subprocess.run(
        [*PIP, "--python", python, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, timeout=720
    )
    return home / "bin" / "podium"


def environment() -> dict[str, str]:
    """Nothing of the checkout, and a PATH without DVC."""
    unwanted = {"PYTHONPATH", "PODIUM_ROOT", "PODIUM_DVC", "DAGSTER_HOME", "MLFLOW_TRACKING_URI", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in unwanted} | {"PATH": "/usr/bin:/bin"}


def podium(command: Path, folder: Path, *arguments: str) -> str:
    words = [str(command), *arguments]
    done = subprocess.run(
        words, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=720
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_carries_what_the_code_reads_and_no_test(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    carried = ("config/recipes/quickstart.yaml", "config/pools/paper.yaml", "config/promotion.yaml", "mlflow/agent.py")
    carried += ("config/recipes/paper-code.yaml", "config/deepspeed/zero3-offload.json")
    carried += ("config/deepspeed/zero3.json", "data/knowledge/units.csv", "data/few_shots/mixed.yaml")
    carried += ("data/cold_start/subtasks.yaml", "dvc.yaml", "dagster.yaml", "constraints.txt")
    assert {f"ops/files/{name}" for name in carried} <= names
    folders = {"ops", "assets", "pipelines", "podium_conductor-0.1.0.dist-info"}
    assert {name.partition("/")[0] for name in names} <= folders


@pytest.mark.long  # `make test` looks into the wheel
def test_help_and_plan_in_an_empty_folder_leave_it_empty(command: Path, tmp_path: Path) -> None:
    assert "Usage: podium" in podium(command, tmp_path, "--help")
    assert "960 training questions" in podium(command, tmp_path, "plan", "quickstart")
    assert "claude-sonnet-4" in podium(command, tmp_path, "pools", "show", "paper")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(command: Path, tmp_path: Path) -> Path:
    """A workspace made by `podium init`, with the recipe of a small pipeline run."""
    laid_out = podium(command, tmp_path, "init")
    assert laid_out.startswith(f"{tmp_path}: ") and "no versions of the data are kept" in laid_out
    configure(Workspace(tmp_path), {"recipes/mini": RECIPE, "promotion": LENIENT})
    return tmp_path


@pytest.mark.long
def test_the_first_stages_of_a_laid_out_folder(command: Path, folder: Path) -> None:
    podium(command, folder, "data", "raw", "mini")
    assert "20 candidate questions" in podium(command, folder, "data", "shortlist", "mini")
    assert "180 calls" in podium(command, folder, "data", "responses", "mini")


@pytest.mark.long
def test_a_pipeline_run_in_an_empty_folder(command: Path, folder: Path) -> None:
    assert "models:/conductor@champion is version 1" in podium(command, folder, "run", "mini")
    assert not (folder / "dvc.lock").exists()
    champion = registry.find_champion(Workspace(folder))
    assert champion is not None
    assert (champion.tags["git_commit"], len(champion.tags["dvc_revision"])) == ("unknown", 12)
    [run] = (folder / ".podium" / "runs").iterdir()
    assert "has finished already" in podium(command, folder, "train", "--run", str(run))


USES = {
    "store": "from ops.release.mlflow_store import connect\nwith connect(workspace): pass",
    "tracing": "from ops.release.tracing import store_traces\nstore_traces('', '', [])",
}


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """Everything installed except mlflow."""
    installed = Path(pydantic.__file__).parents[1]
    for file in installed.iterdir():
        if not file.name.startswith("mlflow"):
            (tmp_path / file.name).symlink_to(file)
    return tmp_path


@pytest.mark.parametrize("use", USES)
def test_a_missing_mlflow_is_reported_with_its_remedy(libraries: Path, use: str) -> None:
    """In the project's folder, whose `mlflow/` is not imported."""
    program = (
        "import mlflow\n"
        "assert mlflow.__file__ is None, 'the folder hides what this test is about'\n"
        "from pathlib import Path\nfrom ops.core.errors import PodiumError\nfrom ops.core.workspace import Workspace\n"
        f"workspace = Workspace(Path({str(libraries)!r}))\n"
        "try:\n    " + USES[use].replace("\n", "\n    ") + "\n"
        "except PodiumError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(libraries)])},
    )  # fmt: skip
    assert "the mlflow library is not installed. Run `" in done.stdout, done.stderr
