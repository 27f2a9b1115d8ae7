"""The champion for those who serve it: which version it is, where its files lie, and where its traces go."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import yaml

from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.release import store
from ops.release.artifacts import check_files
from ops.release.tracing import export
from ops.serving.answer import Answer
from ops.serving.http.routes import Record
from ops.serving.loaded import VersionFiles

if TYPE_CHECKING:
    from mlflow import MlflowClient

_KEPT = 1000
"""Traces that wait to be written; further ones are dropped."""


@contextmanager
def champion_of(workspace: Workspace) -> Iterator[Champion]:
    """The registry's champion; mlflow is set to the workspace's store and experiment meanwhile.

    Raises `RegistryError` when there is none.
    """
    missing = f"There is no {store.CHAMPION} yet. `podium run` trains and promotes one"
    if not store.store_exists(workspace):
        raise store.RegistryError(missing)
    with store.connected(workspace) as client:
        champion = Champion(workspace, client)
        if champion.current() is None:
            raise store.RegistryError(missing)
        yield champion


class Champion:
    """Versions of the registry, as `ops.serving.follow.Source`."""

    def __init__(self, workspace: Workspace, client: MlflowClient) -> None:
        self._workspace, self._client = workspace, client

    def traces(self) -> TraceKeeper:
        """Where answers' traces go."""
        return TraceKeeper(self._workspace, self._client)

    def current(self) -> str | None:
        """The version with the alias `champion`, or None. Raises `RegistryError` when the registry does not answer."""
        from mlflow.exceptions import MlflowException

        try:
            version = store.aliased(self._client, store.CHAMPION)
        except MlflowException as error:
            raise store.RegistryError(f"the registry does not say who is champion ({error})") from None
        return None if version is None else version.version

    def files(self, version: str) -> VersionFiles:
        """Where the version's parts lie: in a store on this machine as they are, else in a copy under `.podium`.

        Nothing that the version carries is run. Raises `RegistryError`, `DataError`, and `Refused` when a file is not
        what was registered.
        """
        from mlflow.exceptions import MlflowException

        try:
            folder = self._folder(version)
            check_files(version, folder, store.version_named(self._client, version).tags)
        except MlflowException as error:
            raise store.RegistryError(f"version {version} cannot be fetched ({error})") from None
        file = folder / "MLmodel"
        try:
            flavor = yaml.safe_load(file.read_text(encoding="utf-8"))["flavors"]["python_function"]
            places = {name: folder / flavor["artifacts"][name]["path"] for name in ("policy", "pool")}
            settings = dict(flavor.get("config") or {})
        except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            remedy = "Restore the artifacts, or register the policy again"
            raise DataError(file, "(file)", f"is not a version's ({error!r})", remedy) from None
        return VersionFiles(version, places["policy"], places["pool"], settings)

    def _folder(self, version: str) -> Path:
        import mlflow

        model_id = store.version_named(self._client, version).model_id
        place = str(self._client.get_logged_model(model_id).artifact_location)
        parts = urlsplit(place)
        if parts.scheme in ("", "file"):
            return Path(unquote(parts.path))
        kept = self._workspace.state / "serving" / model_id
        if not kept.is_dir():
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = Path(mkdtemp(prefix=".part-", dir=kept.parent))  # a download that breaks off is no version
            mlflow.artifacts.download_artifacts(artifact_uri=place, dst_path=str(part))
            whole = part if (part / "MLmodel").is_file() else next(part.rglob("MLmodel")).parent
            whole.replace(kept)
        return kept


class TraceKeeper:
    """Writes answers' steps as MLflow traces, in a thread of its own, while mlflow is set to the store."""

    def __init__(self, workspace: Workspace, client: MlflowClient) -> None:
        import mlflow

        self._experiment = store.experiment(client, workspace)
        mlflow.set_experiment(experiment_id=self._experiment)  # where those belong that MLflow begins itself
        self.on_dropped: Callable[[], None] = lambda: None
        """Told of every trace that was not written."""
        self._queue: queue.Queue[Record | None] = queue.Queue(_KEPT)
        self._thread: threading.Thread | None = None

    def keep(self, record: Record) -> None:
        """Write it when there is time; what would wait behind too many is dropped, and counted."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_on, name="traces", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.on_dropped()

    def below(self, request: str, answer: Answer) -> None:
        """Add the steps below the span that MLflow has open for the request in this task."""
        import mlflow

        if (span := mlflow.get_current_active_span()) is not None:
            mlflow.update_current_trace(tags={"request": request, "version": answer.version}, client_request_id=request)
            for run in answer.runs:
                export(run, "workflow", parent=span)

    def write(self, record: Record) -> str:
        """Write one trace now; its id in MLflow."""
        import mlflow
        from mlflow.entities import SpanType

        answer = record.answer
        began = min((int(run.began * 1e9) for run in _traces(answer)), default=None)
        root = mlflow.start_span_no_context(
            record.route,
            span_type=SpanType.AGENT,
            inputs={"question": answer.problem.question} if record.texts else None,
            attributes=answer.account(texts=False),
            tags={"request": record.request, "version": answer.version, "status": answer.status},
            experiment_id=self._experiment,
            start_time_ns=began,
        )
        for run in answer.runs:
            export(run, "workflow", texts=record.texts, parent=root)
        said = {"answer": answer.text} if record.texts and answer.text is not None else None
        root.end(outputs=said, status="OK" if answer.text is not None else "ERROR")
        return str(root.trace_id)

    def close(self, seconds: float = 10.0) -> None:
        """Write what waits, for about so long; what is left then is dropped."""
        import mlflow

        if self._thread is not None:
            with suppress(queue.Full):
                self._queue.put_nowait(None)
            self._thread.join(seconds)
        # MLflow writes behind our back, and would let nobody go before it has done: a store may be slow, or away.
        flushing = threading.Thread(target=mlflow.flush_trace_async_logging, daemon=True)
        flushing.start()
        flushing.join(seconds)

    def _write_on(self) -> None:
        import logging

        while (record := self._queue.get()) is not None:
            try:
                self.write(record)
            except Exception:  # a store that is away costs traces, and no answers
                logging.getLogger(__name__).exception("request %s has no trace", record.request)
                self.on_dropped()


def _traces(answer: Answer) -> Iterator[Any]:
    for run in answer.runs:
        yield from run.traces if hasattr(run, "traces") else (run,)
