"""What experiments came to, on disk: where it lies, and what it is of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.conductor.policy import policy_key
from ops.config import Setup, digest
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.origin import Origin, check_origin
from ops.core.problem import Problem
from ops.evaluation.experiment import Experiment, Findings, Intervention, Observation
from ops.evaluation.experiment_report import AS_IT_IS, ArmRows, intervention_picture, intervention_table
from ops.evaluation.report import Columns
from ops.evaluation.rows import ScoreRow
from ops.evaluation.scores import at_prices, load_rows, save_rows
from ops.evaluation.stored import scores_origin

_ARMS, _FINDINGS, _PICTURE = "arms.json", "findings.json", "picture.png"
Questions = Mapping[str, Sequence[Problem]]


@dataclass(frozen=True)
class Shelf:
    """Where one experiment on one policy lies, in this setup: `scores/experiments/NAME/KEY`."""

    setup: Setup
    policy: Path
    entry: Experiment

    @property
    def folder(self) -> Path:
        return self.setup.workspace.scores / "experiments" / self.entry.name / digest(self._method())

    def _method(self) -> dict[str, str]:
        """What it is of, whatever is asked: `drawing` is the seed of the dice, and how an observed policy writes."""
        recipe = self.setup.recipe
        drawing = [recipe.grpo.temperature, recipe.grpo.max_completion_tokens, recipe.generation.model_dump()]
        return {
            "experiment": f"{self.entry.name} {self.entry.version}",
            "policy": policy_key(self.policy),
            "drawing": digest([recipe.seed, *(drawing if isinstance(self.entry, Observation) else [])]),
        }

    @property
    def _remedy(self) -> str:
        return f"Run `podium experiments {self.entry.name}`"


class ArmShelf(Shelf):
    """Of an intervention: score rows of the policy as it is and of every arm."""

    def keep(self, place: int, name: str, rows: Sequence[ScoreRow], questions_of: Questions) -> None:
        """Store the rows of the arm at that place; the policy as it is stands at 0."""
        for benchmark, questions in questions_of.items():
            own = [row for row in rows if row.benchmark == benchmark]
            save_rows(own, self._file(place, benchmark), origin=self._origin(name, benchmark, questions))

    def kept(self, place: int, name: str, questions_of: Questions) -> list[ScoreRow]:
        """The rows of the arm of that name at that place, at the pool's prices. Raises `DataError` where there are
        none, or what lies there is of something else."""
        rows: list[ScoreRow] = []
        for benchmark, questions in questions_of.items():
            file = self._file(place, benchmark)
            check_origin(file, self._origin(name, benchmark, questions), self._remedy)
            rows += at_prices(load_rows(file), self.setup.asked_on(benchmark).pool)
        return rows

    def close(self, arms: Sequence[ArmRows]) -> None:
        """Say that these are all arms."""
        listed = [{"name": arm.name, "changed": arm.changed} for arm in arms]
        write_text(self.folder / _ARMS, json.dumps(listed, ensure_ascii=False, indent=1) + "\n")

    def findings(self, questions_of: Questions) -> Findings:
        """The table of all arms. Raises `DataError` where the experiment has not been run to its end."""
        listed = _read(self.folder / _ARMS, self._remedy)
        arms = [
            ArmRows(each["name"], each["changed"], self.kept(place, each["name"], questions_of))
            for place, each in enumerate(listed, start=1)
        ]
        as_it_is = self.kept(0, AS_IT_IS, questions_of)
        table = intervention_table(as_it_is, arms)
        unscorable = sum(row.unscorable for arm in arms for row in arm.rows)
        said = f"{unscorable} rows of unreachable workers are left out." if unscorable else ""
        return Findings(table, Columns([], []), said, intervention_picture(as_it_is, arms))

    def _file(self, place: int, benchmark: str) -> Path:
        return self.folder / str(place) / f"{benchmark}.parquet"

    def _origin(self, name: str, benchmark: str, questions: Sequence[Problem]) -> Origin:
        scored = scores_origin(self.setup.asked_on(benchmark), self.policy, questions)
        return {**self._method(), **scored, "arm": name}


class FindingsShelf(Shelf):
    """Of an observation: what it found."""

    def keep(self, found: Findings) -> None:
        """Store it, the picture first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _PICTURE).write_bytes(found.picture)
        facts = {"summary": found.summary, "details": found.details, "said": found.said}
        write_text(self.folder / _FINDINGS, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")

    def findings(self) -> Findings:
        """Raises `DataError` where there are none."""
        facts = _read(self.folder / _FINDINGS, self._remedy)
        summary, details = (Columns(*facts[name]) for name in ("summary", "details"))
        return Findings(summary, details, facts["said"], (self.folder / _PICTURE).read_bytes())


def stored_findings(setup: Setup, policy: Path, entry: Experiment, questions_of: Questions) -> Findings:
    """What the experiment came to on this policy. Raises `DataError` where it has not been run."""
    if isinstance(entry, Intervention):
        return ArmShelf(setup, policy, entry).findings(questions_of)
    return FindingsShelf(setup, policy, entry).findings()


def _read(file: Path, remedy: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(file, "(file)", "does not exist", remedy) from None
    except ValueError as error:
        raise DataError(file, "(file)", f"is not JSON ({error})", remedy) from None
