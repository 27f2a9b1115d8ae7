"""Notices, and the catalogue of alerts: which state is reported, and the command to run (docs/reference/alerts.md)."""

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
    """The facts that the reader needs in order to decide whether to act now."""
    link: str = ""
    """Where the details are: the page of a run, or a file."""
    command: str = ""
    """The command to run. If there are several, it is the first one."""
    occasion: str = ""
    """The key of the event. Only one notice is sent per key while it is open; if it is empty, every notice is sent."""
    alert: str = ""
    """The name of the alert in the catalogue, by which what solves it closes it."""
    subject: str = ""
    """What the notice is about, if the alert can be open for several things: a run, a version or a model."""

    @property
    def heading(self) -> str:
        """Return the title in one line, after the kind of the alert."""
        return f"[podium] {self.kind}: {' '.join(self.title.split())}"

    @property
    def body(self) -> str:
        """Return the text, the command and the link."""
        command = f"Command: {self.command}" if self.command else ""
        return "\n\n".join(part for part in (self.text.strip(), command, self.link.strip()) if part)


@dataclass(frozen=True)
class Alert:
    """A state that is reported. Its `command` may have placeholders, which `make_notice` fills in."""

    kind: AlertKind
    state: str
    command: str = ""
    """The command that a person has to run. It is empty if nobody has to do anything."""

    @property
    def name(self) -> str:
        """Return the alert's name in the catalogue."""
        return next(name for name, each in CATALOGUE.items() if each is self)

    def make_notice(
        self, title: str, text: str = "", link: str = "", occasion: str = "", subject: str = "", **values: str
    ) -> Notice:
        """Return the notice that reports this state. Raises `KeyError` if a placeholder of the command has no value."""
        return Notice(self.kind, title, text, link, self.command.format_map(values), occasion, self.name, subject)

    @property
    def command_template(self) -> str:
        """Return the command with its placeholders in capitals."""
        names = [name for _, name, _, _ in Formatter().parse(self.command) if name]
        return self.command.format_map({name: name.upper().replace("_", " ") for name in names})


RUN_FAILED = Alert(
    "failure", "A run failed. It was started in the web interface, by a schedule, a sensor or a command",
    "{the_same_command}",
)  # fmt: skip
FIRST_STEP_INVALID = Alert(
    "failure",
    "The training after a change of the pool stopped in its first step, because the champion writes no valid workflows "
    "for the present pool",
    "podium run {recipe} --seed {seed}",
)  # fmt: skip
RUN_NOT_STARTED = Alert(
    "failure",
    "A command without a terminal could not start its run, because of a mistake in the configuration, a missing key or "
    "another run",
    "{the_same_command}",
)  # fmt: skip
CAP_REACHED = Alert(
    "budget", "A run has spent its budget or that of the month. Raise `budget` in the recipe, or leave the run stopped",
    "{the_same_command}",
)  # fmt: skip
WORKER_DRIFTED = Alert(
    "drift", "A worker is right more or less often than in its stored answers", "podium retrain --dry-run"
)
CHAMPION_DRIFTED = Alert(
    "drift", "The champion is right more or less often than in its stored answers, although no worker has drifted",
    "podium run {recipe} --seed {another_seed}",
)  # fmt: skip
DRIFT_SOLVED = Alert(
    "drift",
    "A worker or the champion that was reported as changed answers as before again, or was replaced",
)
CHAMPION_FALLS = Alert(
    "decision",
    "The champion does not pass the promotion gate with the present pool, and the same run trains it further",
)
CHAMPION_STAYS_BELOW = Alert(
    "decision",
    "The champion is not accurate enough for the promotion gate with the present pool, and nothing is done about it",
    "podium run {recipe} --seed {another_seed}",
)  # fmt: skip
CHAMPION_TOO_COSTLY = Alert(
    "decision",
    "The champion is accurate enough, but with the present pool or prices it is more expensive or slower than the "
    "promotion gate allows. It stays champion",
)
TRAIN_ANEW = Alert(
    "decision",
    "A new worker would improve the results, but the champion cannot use it, because its prompt does not describe the "
    "workers",
    "podium run {recipe} --seed {seed}",
)  # fmt: skip
PLAN_WAITS = Alert(
    "decision",
    "The pool has changed, and the work that this requires costs more than `retraining.budget_usd`",
    "podium retrain",
)
POOL_UNHANDLED = Alert(
    "decision",
    "The pool has changed, and neither the sensor `pool_changed` nor the schedule `monthly_check` is turned on",
    "podium retrain --dry-run",
)
WORKER_RETIRES = Alert(
    "decision", "A provider has retired the model of a worker of the champion's pool, or will do so within 60 days",
    "podium retrain --dry-run",
)  # fmt: skip
KEPT_BACK = Alert(
    "promotion", "The promotion gate has not promoted a version", "podium promote {version} --by NAME --reason WHY"
)
PROMOTED = Alert("promotion", "The promotion gate or a person has made a version the champion")
ROLLED_BACK = Alert("promotion", "A person has made the previous champion the champion again")

CATALOGUE = {name: each for name, each in list(globals().items()) if isinstance(each, Alert)}
"""All alerts by name, in the order above."""
