"""Start the ranks of a training by accelerate's launcher, and pass requests to stop on to them.

torch's elastic launcher, which accelerate uses, gives ranks 30 s after a signal and ends at a second one, which Ctrl-C
at a terminal sends. A rank must be allowed to finish its step.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

import psutil

REQUESTS = (signal.SIGTERM, signal.SIGINT)
"""Signals that request a stop, any number of times."""


def forward(number: int, *_: Any) -> None:
    """Send a signal to this process's children, which are the ranks."""
    for rank in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            rank.send_signal(number)


def main() -> None:
    """Run `python -m ops.training.run.launcher` with the arguments of
    `accelerate launch`; end when the ranks have ended.
    """
    os.environ["PET_SIGNALS_TO_HANDLE"] = "SIGHUP,SIGQUIT"  # this process handles the other arguments
    for number in REQUESTS:
        signal.signal(number, forward)
    from accelerate.commands.launch import main as launch

    launch()


if __name__ == "__main__":
    main()
