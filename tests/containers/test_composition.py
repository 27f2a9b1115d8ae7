"""The images and compose.yaml, from no container to a champion that answers after a crash and a restart.

`make containers` runs it; it takes long, so that no other command does.
"""

from __future__ import annotations

import json
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import needs
from tests.conftest import make_project
from tests.containers import images
from tests.containers.composition import STARTS_S, Composition
from tests.team.servers import answers, until
from tests.team.test_life import QUESTION, SHORTER, graphql, launched, shortened

pytestmark = [
    needs.podman,
    pytest.mark.soak,
    pytest.mark.skipif(not os.environ.get("PODIUM_CONTAINERS"), reason="builds images for long: run `make containers`"),
]
FAILURES = """query($run: ID!) {logsForRun(runId: $run) {... on EventConnection {events {
    ... on ExecutionStepFailureEvent {stepKey error {message errorChain {error {message}}}}
    ... on RunFailureEvent {message error {message}}}}}}"""
RUNS = """query($filter: RunsFilter) {
    runsOrError(filter: $filter) {... on Runs {results {runId status rootRunId stepStats {stepKey status}}}}}"""


@pytest.mark.timeout(7200)
def test_the_composition_trains_and_serves_a_champion_through_a_crash_and_a_restart(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()

    def say(text: str) -> None:
        with capfd.disabled():
            print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    with images.settings_of_podman(tmp_path):
        images.public_images(say)
        images.own_image()
        say("the CPU image is built")
        nothing_of_this_machine()
        folder = tmp_path / "composition"
        folder.mkdir()
        with Composition(folder, say) as services:
            lifecycle(services, tmp_path, say)


def nothing_of_this_machine() -> None:
    """Check that pip's configuration of the machine that built the image is not in it: mounts leave empty files."""
    look = "python -m pip config list; env | grep PIP_; find /run/pip -type f -size +0; cat /etc/pip.conf"
    said = images.podman("run", "--rm", images.IMAGE, "sh", "-c", f"({look}) 2>/dev/null; true")
    assert said.strip() == "", said


def lifecycle(services: Composition, folder: Path, say: images.Say) -> None:
    services.start("postgres", "redis", "s3", "mlflow", "setup", "code")
    shorter(services, folder)
    services.start("daemon", "webserver")
    use(services, say)


def use(services: Composition, say: images.Say) -> None:
    """Train and serve a champion; kill the code server meanwhile, stop and start all."""
    page = f"http://127.0.0.1:{services.ports['webserver']}"
    until(lambda: answers(f"{page}/server_info"), "the web server answers", STARTS_S, 1)
    until(lambda: located(page), "the web server has loaded the code", STARTS_S, 1)
    run = launched(page, "lifecycle")
    say(f"run {run} was launched through the web server")
    until(lambda: under_way(page, run, "conductor"), "the run trains", STARTS_S, 1)
    services.kill("code")
    until(lambda: ended(page, run), "the run and its retry have ended", 2 * STARTS_S, 1)
    attempts = attempts_of(page, run)
    statuses = [each["status"] for each in attempts]
    say(f"attempts of the run: {', '.join(statuses)}")
    assert statuses == ["FAILURE", "SUCCESS"], [failures(page, each["runId"]) for each in attempts]
    asked = httpx.get(
        f"http://127.0.0.1:{services.ports['mlflow']}/api/2.0/mlflow/registered-models/alias",
        params={"name": "conductor", "alias": "champion"}, timeout=60, trust_env=False,
    ).raise_for_status()  # fmt: skip
    say(f"the champion is version {asked.json()['model_version']['version']}")
    services.start("serve")
    first = answer(services)
    say(f"asked from outside: {first!r}")
    services.compose("stop", "--timeout", "20")
    services.compose("start")
    services.ready("serve")
    again = answer(services)
    say(f"asked after a stop and a start: {again!r}")
    assert again == first


def shorter(services: Composition, folder: Path) -> None:
    """Give the workspace of the composition settings of minutes."""
    project = shortened(make_project(folder / "project"), {**SHORTER, "versions": {"push": False}})
    with tarfile.open(folder / "config.tar", "w") as packed:
        for name in ("recipes/quickstart.yaml", "pools/quickstart.yaml", "promotion.yaml"):
            packed.add(project.config / name, f"config/{name}")
    services.execute("code", "tar", "-C", "/srv/podium", "--no-same-owner", "-x", stdin=folder / "config.tar")


def answer(services: Composition) -> str:
    """Ask the champion over OpenAI's API with the token, from outside the containers; without it nothing answers."""
    url = f"http://127.0.0.1:{services.ports['serve']}/v1/chat/completions"
    body = {"model": "conductor", "messages": [{"role": "user", "content": QUESTION}]}
    assert httpx.post(url, json=body, timeout=60, trust_env=False).status_code == 401
    token = {"authorization": f"Bearer {services.token}"}
    reply = httpx.post(url, json=body, headers=token, timeout=300, trust_env=False)
    assert reply.status_code == 200, reply.text + services.log("serve")
    said = reply.json()["choices"][0]["message"]["content"]
    assert said, reply.text
    return str(said)


# ── Dagster's web server ─────────────────────────────────────────────────────


def located(page: str) -> bool:
    try:
        said = graphql(page, "{repositoriesOrError {... on RepositoryConnection {nodes {name}}}}")
    except httpx.HTTPError:
        return False
    return bool(said["repositoriesOrError"].get("nodes"))


def attempts_of(page: str, run: str) -> list[dict[str, Any]]:
    """Return the run and its retries, oldest first."""
    again = graphql(page, RUNS, filter={"tags": [{"key": "dagster/root_run_id", "value": run}]})
    first = graphql(page, RUNS, filter={"runIds": [run]})
    return [*first["runsOrError"]["results"], *reversed(again["runsOrError"]["results"])]


def failures(page: str, run: str) -> list[Any]:
    """Return what failed in the run, with its message."""
    return [each for each in graphql(page, FAILURES, run=run)["logsForRun"]["events"] if each]


def under_way(page: str, run: str, step: str) -> bool:
    [attempt] = attempts_of(page, run)
    assert attempt["status"] not in ("FAILURE", "CANCELED"), json.dumps(attempt)
    return any(each["stepKey"] == step and each["status"] == "IN_PROGRESS" for each in attempt["stepStats"])


def ended(page: str, run: str) -> bool:
    """Return whether the retry of the run has ended: the run itself fails with its code server."""
    statuses = [each["status"] for each in attempts_of(page, run)]
    return len(statuses) > 1 and statuses[-1] in ("SUCCESS", "FAILURE", "CANCELED")
