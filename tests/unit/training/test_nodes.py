"""The number of this machine among several, and the arguments of accelerate's launcher there."""

from __future__ import annotations

import pytest

from ops.core.errors import ConfigError
from ops.training.run.processes import MAIN, NODES, RANK, TrainingNode, this_node


def test_one_machine_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (NODES, RANK, MAIN):
        monkeypatch.delenv(name, raising=False)
    assert this_node() == TrainingNode() and this_node().arguments(3) == ["--num_machines", "1"]
    monkeypatch.setenv(NODES, "1")
    assert this_node() == TrainingNode()


def test_the_error_of_a_duplicate_names_both_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ((NODES, "2"), (RANK, "1"), (MAIN, "10.0.0.1:29500")):
        monkeypatch.setenv(name, value)
    arguments = this_node().arguments(4)
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {
        "--num_machines": "2", "--machine_rank": "1", "--main_process_ip": "10.0.0.1",
        "--main_process_port": "29500", "--deepspeed_multinode_launcher": "standard",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="3 ranks"):
        this_node().arguments(3)


@pytest.mark.parametrize(("rank", "main"), [("", "h:1"), ("2", "h:1"), ("0", ""), ("0", "host"), ("x", "h:1")])
def test_half_a_word_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, main: str) -> None:
    for name, value in ((NODES, "2"), (RANK, rank), (MAIN, main)):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="HOST:PORT"):
        this_node()
