"""`podium`: the one command, and its groups."""

from __future__ import annotations

import logging
import os
import sys

import click

from ops.core.errors import ConfigError, PodiumError
from ops.core.installation import DISTRIBUTION
from ops.core.workspace import Workspace
from pipelines.commands.lazy_group import CommandError, LazyGroup
from pipelines.environment_file import read_environment_file
from pipelines.startup import UNUSED_LIBRARIES, defer_garbage_collection

HERE = "pipelines.commands"
SECTIONS = {
    "The pipeline": {
        "init": f"{HERE}.init:init",
        "run": f"{HERE}.lifecycle:run",
        "train": f"{HERE}.lifecycle:train",
        "evaluate": f"{HERE}.lifecycle:evaluate",
        "report": f"{HERE}.report:report",
        "study": f"{HERE}.study:study",
        "status": f"{HERE}.status:status",
        "runs": f"{HERE}.status:runs",
        "dev": f"{HERE}.lifecycle:dev",
        "team": f"{HERE}.team:team",
    },
    "Before anything is spent": {
        "plan": f"{HERE}.plan:plan",
        "forecast": f"{HERE}.plan:forecast",
        "recipes": f"{HERE}.recipes:recipes",
        "pools": f"{HERE}.pools:pools",
        "config": f"{HERE}.recipes:config",
        "doctor": f"{HERE}.plan:doctor",
    },
    "Data, answers, money": {
        "data": f"{HERE}.data:data",
        "cache": f"{HERE}.cache:cache",
        "ledger": f"{HERE}.ledger:ledger",
        "backup": f"{HERE}.init:backup",
        "restore": f"{HERE}.init:restore",
    },
    "Release": {
        "ask": f"{HERE}.release:ask",
        "serve": f"{HERE}.release:serve",
        "verdict": f"{HERE}.release:verdict",
        "promote": f"{HERE}.release:promote",
        "rollback": f"{HERE}.release:rollback",
        "retrain": f"{HERE}.retrain:retrain",
        "drift": f"{HERE}.retrain:drift",
        "alerts": f"{HERE}.alerts:alerts",
    },
    "Tables and workflows": {
        "reproduce": f"{HERE}.report:reproduce",
        "baselines": f"{HERE}.report:baselines",
        "workflow": f"{HERE}.workflow:workflow",
    },
    "The shell": {"completion": f"{HERE}.options:completion"},
}


@click.command(
    cls=LazyGroup, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        ("Run the pipeline in the synthetic environment, which needs no key and no GPU.", "podium run quickstart"),
        ("Show what the paper's recipe needs and costs on two GPUs of 80 GB.", "podium plan paper --gpus 2x80"),
    ),
)  # fmt: skip
@click.version_option(package_name=DISTRIBUTION)
def podium() -> None:
    """Podium trains a Conductor for your own pool of models, and evaluates, releases, serves and retrains it.

    A Conductor is a small language model that answers a question with the help of the models of a pool. `podium COMMAND
    --help` explains a command.
    """


def execute() -> None:
    """Run the command line of this process."""
    from pipelines.commands.output import WarningPrinter
    from pipelines.termination import end_at_next_signal, record_signals

    logging.lastResort = WarningPrinter(logging.WARNING)
    record_signals()
    try:
        if (workspace := _find_workspace()) is not None:
            read_environment_file(workspace)
        if sys.argv[1:2] and sys.argv[1] in UNUSED_LIBRARIES:
            _exit_without_cleanup(sys.argv[1])
        podium(prog_name="podium")
    except ConfigError as error:  # about .env: the command group prints a command's own errors
        CommandError(str(error)).show()
        sys.exit(1)
    finally:
        end_at_next_signal()


def _find_workspace() -> Workspace | None:
    try:
        return Workspace.find()
    except PodiumError:  # not in a workspace: the command says so where it needs one
        return None


def _exit_without_cleanup(command: str) -> None:
    # Unloading torch takes a second, and MLflow would wait for an unreachable store. Stores are closed and traces are
    # flushed when the command returns.
    defer_garbage_collection(command)
    try:
        podium(prog_name="podium")
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0)
