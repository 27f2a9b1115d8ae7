"""The list of facts at the top of a version's description in MLflow: gain, accuracy, cost, pool, decision and report.

The version is described when it is registered. Its gain and the decision are known when the gate has judged it, and its
report is written after that, so that facts are added to the list later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ops.release.mlflow_store import MODEL_NAME

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from ops.release.dossier import Dossier, Opponent

GAIN, ACCURACY, COST, PAID, POOL, DECISION, REPORT = "Gain", "Accuracy", "Cost", "Paid", "Pool", "Decision", "Report"
"""The names of the facts, in the order of the list."""
_ORDER = (GAIN, ACCURACY, COST, PAID, POOL, DECISION, REPORT)
_FACT = re.compile(r"^- \*\*(\w+):\*\* (.*)$", re.MULTILINE)


def insert_facts(description: str, facts: Mapping[str, str]) -> str:
    """Return the description with these facts in the list after its first paragraph. Facts of the same names are
    replaced, and other facts of the list stay."""
    known = {**dict(_FACT.findall(description)), **facts}
    listed = "\n".join(f"- **{name}:** {known[name]}" for name in _ORDER if name in known)
    first, _, rest = re.sub(r"\n{3,}", "\n\n", _FACT.sub("", description)).partition("\n\n")
    return "\n\n".join(part for part in (first.strip(), listed, rest.strip()) if part)


def store_facts(client: MlflowClient, version: str, facts: Mapping[str, str]) -> None:
    """Insert facts into the description of a version in MLflow. Nothing is written if they are there already."""
    known = str(client.get_model_version(MODEL_NAME, version).description or "")
    if (text := insert_facts(known, facts)) != known:
        client.update_model_version(MODEL_NAME, version, text)


def describe_gain(dossier: Dossier) -> str:
    """Return the gain in accuracy over each opponent of the gate, with its interval, and the ratio of the prices; empty
    if no question was answered by both."""
    compared = [_describe_opponent(each, dossier.confidence) for each in dossier.opponents if each.pairings]
    return "; ".join(compared)


def _describe_opponent(opponent: Opponent, confidence: float) -> str:
    mean = opponent.pairings[0]
    name = opponent.name if opponent.name.startswith("version") else f"the {opponent.name}"
    points = f"{100 * (mean.ours - mean.theirs):+.1f} points of accuracy over {name}"
    interval = f"{100 * confidence:.6g} % interval {100 * mean.low:+.1f} to {100 * mean.high:+.1f}"
    usd, their_usd = mean.values["usd"], mean.values["their_usd"]
    price = f", at {usd / their_usd:.2f} times its price" if their_usd > 0 else ""
    return f"{points} ({interval}){price}"
