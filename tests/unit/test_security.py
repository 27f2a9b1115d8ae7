"""The statements of docs/security.md on files and addresses; its other statements name their tests."""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import load_model
from ops.core.workspace import Workspace
from pipelines import dev
from tests.builders import scratch_policy
from tests.unit.test_architecture import FORBIDDEN, sources, tree_of

ROOT = Path(__file__).resolve().parents[2]
UNPICKLING = {
    "pickle.load", "pickle.loads", "pickle.Unpickler", "cPickle.load", "cPickle.loads", "dill.load", "dill.loads",
    "cloudpickle.load", "cloudpickle.loads", "joblib.load", "torch.load", "marshal.load", "marshal.loads",
    "shelve.open", "pandas.read_pickle", "pd.read_pickle", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
}  # fmt: skip
"""Calls that may execute the contents of a file."""
RUNNING = {"eval", "exec", "os.system", "os.popen"}
RUNS_TEXT = {
    "ops/grading/harness": "inside the sandbox",
    "ops/grading/sandbox.py": "the text that begins the sandbox's own process",
    "ops/synthetic/families": "generated programs of our own, to prove their gold answers",
}
UNPICKLED = {"ops/release/trace_writer.py": "what the server itself writes into the pipe of its own process"}
SWITCHES = {"shell": True, "trust_remote_code": True, "allow_pickle": True, "weights_only": False, "verify": False}


@cache
def calls() -> list[tuple[str, int, str, dict[str, Any]]]:
    """Every call in our code: file, line, dotted name, its constant keywords."""
    found = []
    for file in (file for layer in (*FORBIDDEN, "mlflow") for file in sources(layer)):
        for node in (node for node in ast.walk(tree_of(file)) if isinstance(node, ast.Call)):
            constants = {k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)}
            found.append((str(file), node.lineno, ast.unparse(node.func), constants))
    return found


def test_nothing_unpickles() -> None:
    assert [call for call in calls() if call[2] in UNPICKLING and call[0] not in UNPICKLED] == []


def test_text_is_run_in_the_sandbox_and_where_it_is_our_own() -> None:
    others = [call for call in calls() if call[2] in RUNNING and not call[0].startswith(tuple(RUNS_TEXT))]
    assert others == []


def test_no_call_turns_a_safeguard_off() -> None:
    wrong = [call for call in calls() for name, value in SWITCHES.items() if call[3].get(name, None) is value]
    assert wrong == []


def test_the_walk_sees_what_it_looks_for() -> None:
    tree = ast.parse("pickle.loads(x)\nsubprocess.run(y, shell=True)")
    names = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert names[0] in UNPICKLING
    assert len(calls()) > 1000


class Planted:
    """The contents of a hostile file of weights."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_weights_in_a_pickle_are_refused_and_not_read(tmp_path: Path) -> None:
    import pickle

    import torch

    folder, mark = tmp_path / "policy", tmp_path / "planted"
    card = scratch_policy(folder)
    model, _ = load_model(folder, card)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        load_model(folder, card)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Planted(mark)))
    with pytest.raises(OSError, match="safetensors"):
        load_model(folder, card)
    assert not mark.exists()


def test_the_uis_listen_on_loopback_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.dagster_home.mkdir(parents=True)
    for command in (dev._dagster_command(workspace, 3000), dev._mlflow_command(workspace, 5000)):
        assert command[command.index("--host") + 1] == "127.0.0.1"


def test_no_file_of_the_configuration_listens_wider() -> None:
    folders = ("config", "pipelines", "ops", "assets", "mlflow")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*")]
    wide = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        if file.suffix in {".py", ".yaml"} and "deploy" not in file.parts
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"""["' =]0\.0\.0\.0|host:\s*["']?::["']?\s*$""", line)
    ]
    assert wide == []
