"""Handle a request to stop (SIGTERM, SIGINT): the training finishes its step, writes a checkpoint and ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback

from ops.core.errors import PodiumError
from ops.training.run.processes import STOP_SIGNALS

_NOTICE = "asked to stop by {name}: a checkpoint will be written after this step\n"
_POLL_S = 0.5


class TrainingStopped(PodiumError):
    """Raised if a training ended on request; the message has the step and how to continue."""


class StopRequest(TrainerCallback):  # type: ignore[misc]
    """Ends the training of all ranks with a checkpoint after the step in which one of them received a request to stop.

    Further requests have no effect, because Ctrl-C at a terminal reaches some processes twice.
    """

    def __init__(self) -> None:
        self._name = ""
        self.message = ""
        """The message of the error after the training has ended on request. It is the same on every rank, and empty
        before."""

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Inside the block, treat the stop signals as requests to stop; only the main thread can do so."""
        before = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, *_: Any) -> None:
        if not self._name:
            self._name = signal.Signals(number).name
            os.write(1, _NOTICE.format(name=self._name).encode())  # `print` fails if the signal interrupted `print`

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` seconds during a step that cannot be finished yet. Raises `TrainingStopped` on a request
        to stop."""
        for _ in range(round(seconds / _POLL_S)):
            if self._name:
                raise TrainingStopped(
                    f"training was stopped by {self._name} while workers were away: the same command goes on from "
                    "the last checkpoint"
                )
            await asyncio.sleep(_POLL_S)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        names = sorted(name for name in gather_object([self._name]) if name)
        if names and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
            self.message = (
                f"training was stopped by {names[0]} after step {state.global_step} of {state.max_steps}, whose "
                "checkpoint is written: the same command goes on from there"
            )
