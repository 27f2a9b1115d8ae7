"""Keep the output of steps in files for the Dagster UI without a child process.

Dagster's `LocalComputeLogManager` starts a `tail` and a watcher for each stream of each step. A signal between their
start and its bookkeeping leaves a `tail` behind, which holds standard output open, so that a reader of the output of
`podium run` waits without end.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from assets.dagster_private import CapturedLogContext, LocalComputeLogManager

COPY_INTERVAL_S = 0.5


class StepOutput(LocalComputeLogManager):
    """The files of Dagster's own manager in DAGSTER_HOME; a thread copies new output to the terminal."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> StepOutput:
        return cls(base_dir=str(Path(os.environ["DAGSTER_HOME"]) / "storage"), inst_data=inst_data)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
        out, err = (Path(self.get_captured_local_path(log_key, ending)) for ending in ("out", "err"))
        with _capture_stream(sys.stdout, out), _capture_stream(sys.stderr, err):
            yield CapturedLogContext(log_key)
        Path(self.complete_artifact_path(log_key)).touch()


@contextmanager
def _capture_stream(stream: TextIO, file: Path) -> Iterator[None]:
    """Append to `file` what this process and its children write to `stream`; a thread copies it to the former target of
    `stream`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a stream of a test
        file.touch()
        yield
        return
    stream.flush()
    with os.fdopen(os.dup(descriptor), "wb") as original, file.open("ab") as kept, file.open("rb") as reading:
        reading.seek(0, os.SEEK_END)
        os.dup2(kept.fileno(), descriptor)
        ended = threading.Event()
        shown = threading.Thread(target=_copy_output, args=(reading, original, ended), daemon=True)
        shown.start()
        try:
            yield
        finally:
            stream.flush()
            os.dup2(original.fileno(), descriptor)
            ended.set()
            shown.join()


def _copy_output(reading: BinaryIO, original: BinaryIO, ended: threading.Event) -> None:
    """Copy new output every `COPY_INTERVAL_S`, and the rest at the end, unless the terminal or pipe is closed."""
    try:
        while not ended.wait(COPY_INTERVAL_S):
            shutil.copyfileobj(reading, original)
            original.flush()
        shutil.copyfileobj(reading, original)
        original.flush()
    except BrokenPipeError:  # discards what is still in the buffer
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), original.fileno())
