"""A version on a machine without the checkout: installed from its own requirements, loaded, called and served."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from ops.config import Pool
from ops.release import aliases
from tests.integration.test_registry import QUESTION, contents, policy, pool, register, with_agent
from tests.releases import YES, model_folder
from tests.team.servers import free_port

__all__ = ["policy", "pool"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
INSTALL_S, START_S = 2400, 600
ASK = """
import json, sys, mlflow
agent = mlflow.pyfunc.load_model(".")
answer = agent.predict({"input": [{"role": "user", "content": sys.argv[1]}]})
import ops
print(json.dumps([answer["output"][-1]["content"][0]["text"], ops.__file__]))
"""


def linked_python(folder: Path, requirements: Path) -> Path:
    """The Python of an environment with exactly these requirements and what they need, linked from this one."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    waiting = [Requirement(line) for line in requirements.read_text(encoding="utf-8").splitlines()]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        found = distribution(wanted.name)
        assert wanted.specifier.contains(found.version.partition("+")[0], prereleases=True), (wanted, found.version)
        for extra in ("", *wanted.extras):
            if (found.name, extra) in seen:
                continue
            seen.add((found.name, extra))
            needed = [Requirement(each) for each in found.requires or []]
            waiting += [each for each in needed if not each.marker or each.marker.evaluate({"extra": extra})]
        for file in found.files or []:
            target = packages / file
            if ".." not in file.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(found.locate_file(file))
        for each in found.entry_points.select(group="console_scripts"):
            script = python.with_name(each.name)
            script.write_text(f"#!{python}\nimport sys, {each.module}\nsys.exit({each.module}.{each.attr}())\n")
            script.chmod(0o755)
    return python


def installed_python(folder: Path, requirements: Path) -> Path:
    """The Python of an environment into which pip has installed exactly these requirements."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    first = subprocess.run([*pip, "tenacity"], capture_output=True, text=True, timeout=300, check=False)
    if first.returncode:
        pytest.skip("the package registry cannot be reached, which has the requirements of a version")
    subprocess.run([*pip, "--requirement", str(requirements)], timeout=INSTALL_S, check=True)
    subprocess.run([str(python), "-m", "pip", "check"], timeout=300, check=True)
    return python


@pytest.mark.parametrize(
    "environment_with", [linked_python, pytest.param(installed_python, marks=[pytest.mark.soak])]
)  # fmt: skip
def test_a_version_answers_with_its_own_requirements_and_writes_into_its_folder_alone(
    environment_with: Callable[[Path, Path], Path], tmp_path: Path, policy: Path, pool: Pool
) -> None:
    released = with_agent(tmp_path / "checkout")
    known = register(released, policy, pool, right=6)
    aliases.promote_version(released, known.version, YES)
    model = Path(shutil.copytree(model_folder(released, known), tmp_path / "copied"))
    shutil.rmtree(released.root)
    home = tmp_path / "home"
    home.mkdir()
    python = environment_with(tmp_path / "environment", model / "requirements.txt")
    kept = ("PATH", "LANG", "LC_ALL")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"HOME": str(home), "MLFLOW_DISABLE_TELEMETRY": "true"}
    asked = subprocess.run(
        [python, "-c", ASK, QUESTION], cwd=model, env=environment, capture_output=True, text=True, timeout=START_S,
        check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    text, place = json.loads(asked.stdout.splitlines()[-1])
    assert "42" in text and Path(place).is_relative_to(model)
    assert served(python, model, environment) == text
    assert (model / ".podium" / "ledger.sqlite").is_file()
    assert contents(home) == {}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copied", "environment", "home"]


def served(python: Path, model: Path, environment: dict[str, str]) -> str:
    """Return the answer of MLflow's own server with the model."""
    port = free_port()
    command = [python, "-m", "mlflow", "models", "serve", "--model-uri", ".", "--env-manager", "local"]
    server = subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=model,
        env=environment | {"PATH": f"{python.parent}:{environment['PATH']}"},
        start_new_session=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            end = time.monotonic() + START_S
            while True:
                try:
                    if client.get("/health").status_code == 200:
                        break
                except httpx.TransportError:
                    assert server.poll() is None and time.monotonic() < end
                time.sleep(0.5)
            body = {"input": [{"role": "user", "content": QUESTION}]}
            reply = client.post("/invocations", json=body).raise_for_status().json()
        return str(reply["output"][-1]["content"][0]["text"])
    finally:
        os.killpg(server.pid, 15)
        server.wait(60)
