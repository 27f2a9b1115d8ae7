"""Say in one line why a training failed, if the cause is known.

This module does not import torch.
"""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

from ops.config import Grpo

ERROR_PREFIX = "error: "
"""The beginning of the line in which the trainer reports an expected error."""
INVALID_FIRST_STEP = "training stopped in its first step"
"""The beginning of the error message for a first step without valid workflows (`ops.training.rewards.outage`)."""
_LAST_LINES = 8
_FULL_BYTES = 2**20
"""Free space (bytes) below which a failed trainer may have been unable to report that the disk is full."""
_RANK_EXIT = re.compile(r"^\s*exitcode\s*: -(\d+) \(pid: \d+\)", re.MULTILINE)
"""The pattern of a rank that a signal ended, in the report of torch's elastic launcher."""
_CRASH_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)


def explain_exit(status: int, log: Path, began: int, grpo: Grpo) -> str:
    """Return why a training ended with the exit status `status`, which is negative if a signal ended it.

    `began` is the size of the log (bytes) before the training, whose lines come after it. If a signal ended the process
    or one of its ranks, the text is one line with the signal's name, the likely cause, the log and how to continue. If
    the trainer reported an expected error, it is the trainer's line. Otherwise it has the last lines of the log.
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
    """Return the number of the signal that ended the first rank, or None. The launcher then ends the other ranks by
    SIGTERM."""
    numbers = [int(number) for number in _RANK_EXIT.findall(printed)]
    return next((number for number in numbers if number != signal.SIGTERM), numbers[0] if numbers else None)


def _describe_signal(number: int, grpo: Grpo) -> str:
    """Return the likely sender of a signal or the likely cause, in words."""
    if number == signal.SIGKILL:
        return (
            "most likely by the kernel for want of memory (`dmesg` says so): lower grpo.micro_batch "
            f"(now {grpo.micro_batch}) or grpo.rollouts_per_question (now {grpo.rollouts_per_question})"
        )
    if number in _CRASH_SIGNALS:
        return "a crash in native code: the log's last lines say where"
    return "which another process sent: a shutdown, a scheduler or a person"
