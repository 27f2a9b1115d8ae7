"""A champion's pool edited in seven ways while daemon and sensor are on: the planned work happens, once.

It needs a pipeline run, a daemon, and runs in separate processes, so it takes minutes. `test_pool_changed` has the
sensor's ticks alone. With `-s` it prints the event log as a table.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus

from ops.alerts.notify import load_notices
from ops.core.documents import format_markdown_table
from ops.core.workspace import Workspace
from ops.release import registry
from ops.spending.ledger import Ledger
from pipelines.dagster_home import prepare_home
from pipelines.dev import make_code_location_arguments
from tests.command import start_run
from tests.integration.checkouts import LENIENT, SHORT, changed, configure, metadata, sizes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

PATIENCE_S = 1800.0
"""Seconds after which the test gives up on a run."""
RECIPE = changed(
    SHORT, name="edited", benchmarks=sizes(24, 4), prompting={"max_steps": 2}, policy={"hidden": 64},
    grpo={"rollouts_per_question": 4, "micro_batch": 8}, fine_tune={"steps": 1},
    guards={"max_invalid_first_step": 1},  # so short a cold start does not satisfy the guard
)  # fmt: skip
ANYTHING = LENIENT | {
    "max_loss_against_champion": 1.0, "max_benchmark_loss": 1.0, "max_cost_ratio": 1000.0, "max_latency_ratio": 1000.0,
    "confidence": 0.999999,
}  # fmt: skip
"""A gate that every policy passes; `NOTHING` is one that none passes."""
NOTHING = ANYTHING | {"min_gain_over_best_worker": 0.9}


@dataclass
class Line:
    """One edit and its consequences."""

    edit: str
    runs: int
    plan: str
    materialized: list[str]
    columns: list[str]
    calls: int
    outcome: str


@dataclass
class Log:
    """The edits' lines, by name."""

    lines: dict[str, Line] = field(default_factory=dict)

    def table(self) -> str:
        head = ("edit", "runs", "plan", "made", "columns asked", "calls paid", "outcome")
        rows = [
            (one.edit, str(one.runs), one.plan, ", ".join(one.materialized), ", ".join(one.columns), str(one.calls),
             one.outcome)
            for one in self.lines.values()
        ]  # fmt: skip
        return format_markdown_table(head, rows)


class Watched:
    """A workspace whose sensor is on."""

    def __init__(self, workspace: Workspace, instance: dg.DagsterInstance) -> None:
        self.workspace, self.instance, self.log = workspace, instance, Log()
        self.pool = workspace.config / "pools" / "quickstart.yaml"

    def runs(self) -> list[dg.DagsterRun]:
        """Return the runs of the job, oldest first."""
        return list(reversed(self.instance.get_runs(dg.RunsFilter(job_name="retraining"))))

    def ticks(self) -> list[InstigatorTick]:
        [state] = [each for each in self.instance.all_instigator_state() if each.name == "pool_changed"]
        return list(self.instance.get_ticks(state.instigator_origin_id, state.selector_id))

    def edited(
        self, name: str, edit: Callable[[], None], *, runs: int, meanwhile: Callable[[], None] | None = None
    ) -> Line:
        """Edit, wait until the expected runs have ended and two ticks found nothing to do; return the work done."""
        before, calls, champion = len(self.runs()), self.calls(), self.champion()
        edit()
        if meanwhile is not None:
            self.wait(lambda: any(not run.is_finished for run in self.runs()[before:]))
            meanwhile()
        began = time.time()
        self.wait(lambda: len(self.runs()) >= before + runs and all(run.is_finished for run in self.runs()))
        ended = max([began, *(self.ended(run) for run in self.runs()[before:])])
        self.wait(lambda: sum(self.idle(tick, ended) for tick in self.ticks()) >= 2)
        done = self.runs()[before:]
        assert all(run.status == dg.DagsterRunStatus.SUCCESS for run in done), [run.status for run in done]
        made, columns = self.made(done)
        now = self.champion()
        standing = self.standing() if "champion_standing" in made else "nothing to do"
        line = Line(
            edit=name,
            runs=len(done),
            plan="; ".join(run.tags["plan"] for run in done) or "nothing",
            materialized=made,
            columns=columns,
            calls=self.calls() - calls,
            outcome=standing if now == champion else f"{standing}; champion {champion} → {now}",
        )
        self.log.lines[name] = line
        return line

    def idle(self, tick: InstigatorTick, since: float) -> bool:
        return tick.timestamp > since and tick.status == TickStatus.SKIPPED and "unchanged" in str(tick.skip_reason)

    def ended(self, run: dg.DagsterRun) -> float:
        record = self.instance.get_run_record_by_id(run.run_id)
        return float(record.end_time or 0.0) if record else 0.0

    def made(self, runs: list[dg.DagsterRun]) -> tuple[list[str], list[str]]:
        """Assets that these runs materialized, in order, and the workers that they precached."""
        names: dict[str, None] = {}
        workers: dict[str, None] = {}
        for run in runs:
            for entry in self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
                event = entry.dagster_event
                assert event is not None and event.asset_key is not None
                names[event.asset_key.to_user_string()] = None
                asked = event.step_materialization_data.materialization.metadata.get("estimate")
                if event.asset_key.to_user_string() == "worker_responses" and isinstance(asked, dg.TableMetadataValue):
                    workers |= dict.fromkeys(str(record.data["worker"]) for record in asked.records)
        return list(names), list(workers)

    def standing(self) -> str:
        facts = metadata(self.instance, "champion_standing")
        return f"{'fine-tuned' if facts['fine_tune'] else 'not trained'}: {facts['why']}"

    def champion(self) -> str:
        known = registry.find_champion(self.workspace)
        return known.version if known else ""

    def calls(self) -> int:
        return sum(spent.calls for spent in Ledger(self.workspace.ledger).by_run().values())

    def wait(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < until, [tick.skip_reason or tick.error for tick in self.ticks()[:3]]
            time.sleep(1.0)

    def change(self, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edit the pool's values; the file is written atomically, as by an editor."""
        values = yaml.safe_load(self.pool.read_text(encoding="utf-8"))
        edit(values)
        self.write(yaml.safe_dump(values, sort_keys=False))

    def write(self, text: str) -> None:
        half = self.pool.with_name(".half")
        half.write_text(text, encoding="utf-8")
        half.replace(self.pool)


def costly(values: dict[str, Any]) -> None:
    for worker in values["workers"]:
        worker["price"]["output"] += 1


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Iterator[Watched]:
    workspace = make(tmp_path_factory.mktemp("edited") / "project")
    retraining = {"settle_s": 10, "min_oracle_rise": 0.5}
    configure(workspace, {"recipes/edited": RECIPE, "promotion": ANYTHING, "retraining": retraining})
    process = start_run(workspace.root, "edited")
    printed, _ = process.communicate(timeout=2880)
    assert process.returncode == 0, printed
    with watching(workspace) as daemon:
        yield daemon


@contextlib.contextmanager
def watching(workspace: Workspace) -> Iterator[Watched]:
    """Switch the sensor on, with a daemon in a separate process."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
            patch.setenv(name, "")
        prepare_home(workspace)
        where = make_code_location_arguments(workspace)
        patch.setenv("PYTHONPATH", str(workspace.root))  # its copy of the code, whatever else is installed
        log = stack.enter_context((workspace.state / "daemon.log").open("w"))
        turned = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "dagster", "sensor", "start", "pool_changed", *where],
            cwd=workspace.dagster_home, capture_output=True, text=True, check=False, timeout=2880,
        )  # fmt: skip
        assert turned.returncode == 0, turned.stdout + turned.stderr
        daemon = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", "from dagster._daemon.cli import main; main()", "run", *where],
            cwd=workspace.dagster_home, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            with dg.DagsterInstance.get() as instance:
                yield Watched(workspace, instance)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGTERM)
            try:
                daemon.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)


def test_seven_edits_do_the_planned_work_once(watched: Watched) -> None:
    text = watched.pool.read_text(encoding="utf-8")
    blank = watched.edited("whitespace", lambda: watched.write(text + "\n# nothing\n\n"), runs=0)
    assert (blank.runs, blank.calls) == (0, 0)

    other = watched.edited("reorder", lambda: watched.change(lambda pool: pool["workers"].reverse()), runs=0)
    assert (other.runs, other.calls) == (0, 0)

    price = watched.edited(
        "change price, ten edits", lambda: [watched.change(costly) for _ in range(10)] and None, runs=1  # type: ignore[func-returns-value]
    )  # fmt: skip
    assert (price.runs, price.calls, price.columns) == (1, 0, [])
    assert price.plan.startswith("another price: ")
    assert price.materialized == ["worker_pool", "worker_responses", "worker_profiles", "champion_standing"]

    gone = watched.edited("remove", lambda: watched.change(lambda pool: pool["workers"].pop(0)), runs=1)
    assert gone.runs == 1
    assert gone.columns == [] and "conductor" not in gone.materialized
    assert "champion_standing" in gone.materialized

    new = {"name": "novice", "model": "local/guesser", "price": {"input": 1, "output": 1}, "latency_s": 0.1,
           "temperature": 0.5, "tags": ["tool"]}  # fmt: skip
    added = watched.edited("add", lambda: watched.change(lambda pool: pool["workers"].append(new)), runs=1)
    assert (added.runs, added.columns) == (1, ["novice"])
    assert "conductor" not in added.materialized and "no newcomer pays" in added.outcome

    def another_model(pool: dict[str, Any]) -> None:
        pool["workers"][-1]["model"] = "local/scholar"

    configure(watched.workspace, {"promotion": NOTHING})
    before = watched.champion()
    changed = watched.edited("change model", lambda: watched.change(another_model), runs=1)
    assert (changed.runs, changed.columns) == (1, ["novice"])
    assert changed.outcome.startswith("fine-tuned: below the gate")
    assert {"training_mix", "conductor", "registered_model", "promotion"} <= set(changed.materialized)
    challenger = registry.find_challenger(watched.workspace)
    assert challenger is not None and challenger.version == str(1 + int(before))

    configure(watched.workspace, {"promotion": ANYTHING})
    meanwhile = watched.edited(
        "edit while a run is in progress",
        lambda: watched.change(lambda pool: pool["workers"].pop(0)),
        meanwhile=lambda: [watched.change(costly) for _ in range(2)] and None,  # type: ignore[func-returns-value]
        runs=2,
    )
    assert meanwhile.runs == 2
    first, second = meanwhile.plan.split("; another price")
    assert first.startswith("removed: ") and second
    alerts = [entry.notice for entry in load_notices(watched.workspace, 99)]
    told = {"CHAMPION_FALLS", "PROMOTED"}
    assert {notice.alert for notice in alerts if not notice.command} <= told, "the others ask for a person"
    occasions = [notice.occasion for notice in alerts if notice.occasion]
    assert len(occasions) == len(set(occasions)), "an alert of one occasion came twice"
    assert any(notice.title.endswith("the same run trains it further") for notice in alerts)
    assert f"podium promote {challenger.version} --by NAME --reason WHY" in [notice.command for notice in alerts]
    print(f"\n{watched.log.table()}")
    print("\n".join(f"{notice.heading}: {notice.command}" for notice in reversed(alerts)))
