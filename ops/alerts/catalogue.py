"""Notices, and the catalogue of alerts: the state to report and the command to run (docs/reference/alerts.md)."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter

from ops.config import AlertKind


@dataclass(frozen=True)
class Notice:
    """One event, described for a person who reads it on a phone."""

    kind: AlertKind
    title: str
    """One line: `promotion: version 7 is champion`."""
    text: str = ""
    """The facts that the reader needs to decide whether to act now."""
    link: str = ""
    """The place of the details: a run's page or a file."""
    command: str = ""
    """The command to run; the first one if there are several."""
    occasion: str = ""
    """Key of the event: only one notice is sent per key. Empty: every notice is sent."""

    @property
    def heading(self) -> str:
        """Return the title in one line, with its kind before it."""
        return f"[podium] {self.kind}: {' '.join(self.title.split())}"

    @property
    def body(self) -> str:
        """Return text, command and link."""
        command = f"Command: {self.command}" if self.command else ""
        return "\n\n".join(part for part in (self.text.strip(), command, self.link.strip()) if part)


@dataclass(frozen=True)
class Alert:
    """One state to report. `command` may have placeholders, which `notice` fills in."""

    kind: AlertKind
    state: str
    command: str

    def notice(self, title: str, text: str = "", link: str = "", occasion: str = "", **values: str) -> Notice:
        """Return the notice of this state. Raises `KeyError` if a placeholder of the command has no value."""
        return Notice(self.kind, title, text, link, self.command.format_map(values), occasion)

    @property
    def example(self) -> str:
        """Return the command with its placeholders in capitals."""
        names = [name for _, name, _, _ in Formatter().parse(self.command) if name]
        return self.command.format_map({name: name.upper().replace("_", " ") for name in names})


RUN_FAILED = Alert(
    "failure", "A run failed: of the UI, a schedule, a sensor or a command; its process may have been killed",
    "{the_same_command}",
)  # fmt: skip
FIRST_STEP_INVALID = Alert(
    "failure", "Fine-tuning stopped in its first step: the champion writes no workflows for the pool as it is",
    "podium run {recipe} --seed {seed}",
)  # fmt: skip
RUN_NOT_STARTED = Alert(
    "failure", "A command without a terminal did not start its run: configuration, a key, another run",
    "{the_same_command}",
)  # fmt: skip
CAP_REACHED = Alert(
    "budget", "A run reached its cap or that of the month: raise `budget` in the recipe, or stop here",
    "{the_same_command}",
)  # fmt: skip
DRIFTED = Alert(
    "drift", "A worker or the champion is right more or less often than its stored answers were",
    "podium retrain --dry-run",
)  # fmt: skip
DRIFT_SOLVED = Alert(
    "drift", "What was reported as drifted answers as its stored answers do, or was replaced", "podium status"
)
CHAMPION_FALLS = Alert(
    "decision", "The champion does not pass the gate on the pool as it is now; fine-tuning follows", "podium retrain"
)
CHAMPION_STAYS_BELOW = Alert(
    "decision", "The champion does not pass the gate at the pool or the prices as they are now; nothing follows",
    "podium run {recipe} --seed {another_seed}",
)  # fmt: skip
TRAIN_ANEW = Alert(
    "decision", "A new worker pays, and the champion cannot use it: it has no worker descriptions",
    "podium run {recipe} --seed {seed}",
)  # fmt: skip
PLAN_WAITS = Alert(
    "decision", "The pool changed, and the plan costs more than `retraining.budget_usd`", "podium retrain"
)
POOL_UNHANDLED = Alert(
    "decision", "The pool changed, and neither `pool_changed` nor `monthly_check` is on", "podium retrain --dry-run"
)
WORKER_RETIRES = Alert(
    "decision", "A provider retires, within 60 days or already, the model of a worker of the champion's pool",
    "podium retrain --dry-run",
)  # fmt: skip
KEPT_BACK = Alert("promotion", "The gate kept a version back", "podium promote {version} --by NAME --reason WHY")
PROMOTED = Alert("promotion", "A version became champion, by the gate or by a person", "podium rollback --reason WHY")
ROLLED_BACK = Alert("promotion", "The champion was rolled back", "podium promote {version} --by NAME --reason WHY")

CATALOGUE = {name: each for name, each in list(globals().items()) if isinstance(each, Alert)}
"""Name → alert, in the order above."""
