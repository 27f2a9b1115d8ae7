"""Report a failed training in one line if the cause is known.

This module does not import torch.
"""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

from ops.config import Grpo

ERROR_PREFIX = "error: "
"""Prefix of the trainer's line for an expected error."""
INVALID_FIRST_STEP = "training stopped in its first step"
"""Prefix of the error of fine-tuning without valid workflows (`ops.training.rewards.outage`)."""
_LAST_LINES = 8
_FULL_BYTES = 2**20
"""Free space (bytes) below which a trainer may have failed to report a full disk."""
_RANK_EXIT = re.compile(r"^\s*exitcode\s*: -(\d+) \(pid: \d+\)", re.MULTILINE)
"""Pattern for a rank ended by a signal in the report of torch's elastic launcher."""
_CRASH_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)


def explain_exit(status: int, log: Path, began: int, grpo: Grpo) -> str:
    """Return why training ended with exit status `status` (negative: a signal); `began`: the log's size before it, in
    bytes.

    For a signal that ended the process or one of its ranks: one line with its name, the likely cause, the log and the
    command that continues. For an error that the trainer names: its line. Otherwise the log's last lines.
    """
    printed = log.read_bytes()[began:].decode("utf-8", errors="replace") if log.is_file() else ""
    if (known := [line for line in printed.splitlines() if line.startswith(ERROR_PREFIX)]) and status > 0:
        line = known[0].removeprefix(ERROR_PREFIX)
        return f"{line if line.startswith('training ') else f'training failed: {line}'} (log: {log})"
    number = -status if status < 0 else _find_rank_signal(printed)
    if number is None:
        if shutil.disk_usage(log.parent).free < _FULL_BYTES:
            return f"{log.parent}: training failed, and the disk is full. Make room; the same command goes on"
        last = "\n".join(printed.splitlines()[-_LAST_LINES:]) or "(nothing)"
        return f"{log}: training failed with exit status {status}. It said last:\n{last}"
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return (
        f"training was ended by {name}, {_describe_signal(number, grpo)}. The same command goes on from the last "
        f"checkpoint, at most {grpo.checkpoint_every} steps back. Log: {log}"
    )


def _find_rank_signal(printed: str) -> int | None:
    """Return the signal of the rank that ended first; the launcher then ends the other ranks by SIGTERM."""
    numbers = [int(number) for number in _RANK_EXIT.findall(printed)]
    return next((number for number in numbers if number != signal.SIGTERM), numbers[0] if numbers else None)


def _describe_signal(number: int, grpo: Grpo) -> str:
    if number == signal.SIGKILL:
        return (
            "most likely by the kernel for want of memory (`dmesg` says so): lower grpo.micro_batch "
            f"(now {grpo.micro_batch}) or grpo.rollouts_per_question (now {grpo.rollouts_per_question})"
        )
    if number in _CRASH_SIGNALS:
        return "a crash in native code: the log's last lines say where"
    return "which another process sent: a shutdown, a scheduler or a person"
