"""Where the sandbox's interpreter begins and ends: descriptors, the job, the report."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable
from typing import Any

from ops.grading.harness.guard import silence
from ops.grading.harness.landlock import confine

Job = dict[str, Any]


def main(run: Callable[[Job], str], job: Job) -> None:
    """Close stdin and stdout to the program, run the job, report behind its nonce, leave at once."""
    report = os.dup(1)
    silence()
    if not job["walled"]:
        confine(job)
    sys.path.extend(job["path"])
    sys.argv = ["program.py"]
    for name in ("exit", "quit"):  # site's, which -S leaves out
        setattr(builtins, name, sys.exit)
    nonce, job["report"] = job.pop("nonce"), report
    text = memoryview((nonce + run(job)).encode())
    while text:
        text = text[os.write(report, text) :]
    os._exit(0)
