"""Memory of DeepSpeed's engines per parameter: measured on a CPU rank, and compared with the plan."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops.core.installation import resources_folder
from ops.planning.memory import GIB, PROCESS_GIB, TrainingEngine, Workload, estimate_memory
from ops.planning.model_shape import ModelShape
from tests.team.servers import free_port
from tests.unit.training.tiny import compiled

pytestmark = [
    pytest.mark.long,  # `make test` compares with DeepSpeed's own estimate (tests/unit/planning)
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("c++") is None, reason="DeepSpeed compiles an operation for CPU ranks: no c++"),
]
ROOT = resources_folder()
LARGE = ModelShape(hidden=3584, intermediate=18944, layers=28, heads=28, kv_heads=4, vocabulary=152064, qkv_bias=True)


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where DeepSpeed finds or compiles its operations, once for all tests here."""
    return Path(shutil.copytree(compiled(), tmp_path_factory.mktemp("engines") / "extensions"))


def measured(name: str, folder: Path) -> dict[str, float]:
    """Return the bytes per parameter, by part."""
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    ranks |= {"MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "tests.integration.engine", str(ROOT / "config" / "deepspeed" / name)]
    environment = os.environ | ranks | {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(folder)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=720)
    assert done.returncode == 0, done.stderr[-2000:]
    last: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.mark.parametrize("name", ["zero2.json", "zero3.json", "zero3-offload.json"])
def test_an_engine_holds_what_it_is_planned_with(name: str, extensions: Path) -> None:
    real = measured(name, extensions)
    settings = json.loads((ROOT / "config" / "deepspeed" / name).read_text(encoding="utf-8"))
    work = Workload(LARGE, "bfloat16", TrainingEngine.from_deepspeed(settings, 1, LARGE.hidden), 4, 256, 2000, 1024)
    made, parameters = estimate_memory(work, 80.0), LARGE.parameters
    planned = {
        "weights": made.part_gib("weights"),
        "gradients": made.part_gib("gradients"),
        "master weights": made.part_gib("master weights (float32)"),
        "moments": made.part_gib("Adam's moments (float32)"),
    }
    if work.engine.offload:  # everything but the weights is in the machine's memory, with gradients in both precisions
        host = sum(real.values()) - real["weights"]
        offloaded = made.part_gib("processes, model", host=True) - PROCESS_GIB
        assert offloaded * GIB / parameters == pytest.approx(host, rel=0.01)
        assert [planned[part] for part in planned if part != "weights"] == [0, 0, 0]
        planned = {"weights": planned["weights"]}
    else:
        assert real["float32 gradients"] == 0
    for part, gib in planned.items():
        assert gib * GIB / parameters == pytest.approx(real[part], rel=0.01), part
