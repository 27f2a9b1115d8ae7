"""The machine's hardware: GPUs from the driver's tool, or as given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.planning.machine import USABLE_GIB_PER_GB, Gpu, detect_machine, parse_gpus

H100 = "NVIDIA H100 80GB HBM3"
PRINTED = f"0, GPU-aa, {H100}, 81559\n1, GPU-bb, {H100}, 81559\n2, GPU-cc, Tesla T4, 15360\n"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `nvidia-smi` that reports three GPUs."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nprintf '{PRINTED}'\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tool


@pytest.mark.parametrize(
    ("text", "count", "gb"), [("2x80", 2, 80), ("1x141", 1, 141), ("8 × 80 GB", 8, 80), ("1X24", 1, 24)]
)
def test_gpus_are_named_by_number_and_size(text: str, count: int, gb: int) -> None:
    gpus = parse_gpus(text)
    assert len(gpus) == count
    assert {gpu.gib for gpu in gpus} == {gb * USABLE_GIB_PER_GB}


def test_no_gpus_are_named_0_and_nothing_else_is_taken() -> None:
    assert parse_gpus("0") == ()
    beyond = ("1000000000x80", "4097x80", "2x2001", "٢x٨٠", f"{'9' * 5000}x80")
    for text in ("80", "0x80", "2x0", "two", "2x80x3", "", *beyond):
        with pytest.raises(PodiumError, match="2x80"):
            parse_gpus(text)


def test_the_gpus_are_read_from_nvidia_smi(driver: Path, tmp_path: Path) -> None:
    machine = detect_machine(Workspace(tmp_path))
    assert machine.gpus == (*(Gpu(H100, 81559 / 1024),) * 2, Gpu("Tesla T4", 15.0))
    assert machine.gpu_gib == 15.0
    assert f"3 × {H100}, 79.6 GiB / Tesla T4, 15.0 GiB" in str(machine)


@pytest.mark.parametrize(("visible", "names"), [("0", 1), ("1,0", 2), ("GPU-bb", 1), ("", 0), ("-1", 0), ("7", 0)])
def test_a_program_sees_what_it_is_shown(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, names: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert len(detect_machine(Workspace(tmp_path)).gpus) == names


def test_a_failing_gpu_tool_counts_as_no_gpu(driver: Path, tmp_path: Path) -> None:
    driver.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n", encoding="utf-8")
    assert detect_machine(Workspace(tmp_path)).gpus == ()


def test_named_gpus_stand_for_those_that_are_here(driver: Path, tmp_path: Path) -> None:
    machine = detect_machine(Workspace(tmp_path / "not" / "yet" / "there"), "1x141")
    assert (len(machine.gpus), machine.is_hypothetical) == (1, True)
    assert "the rest is this machine's" in str(machine)
    assert machine.disk_gib > 0 and machine.memory_gib > 0
