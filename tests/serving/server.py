"""`podium serve`'s application on loopback, with versions that are files: `python -m tests.serving.server FOLDER`.

`FOLDER` holds `current` (the champion's name), `versions/NAME/` (a policy's card and `script.json`: what its Conductor
writes, and how long it takes), `pool.yaml` and `serving.yaml`. All but the Conductor and the registry is real.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ops.config import Serving, load_settings
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.serving import loaded_version
from ops.serving.http.access import AccessControl
from ops.serving.http.server import ServingApp, run_server
from ops.serving.loaded_version import VersionFiles
from tests.serving.script import Scripted

HOST = "127.0.0.1"


class Files:
    """Versions in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_current(self) -> str | None:
        try:
            return (self._folder / "current").read_text(encoding="utf-8").strip() or None
        except OSError as error:
            raise PodiumError(f"the registry is away ({error})") from None

    def explain_missing(self) -> str:
        return "there is no champion"

    def fetch_files(self, version: str) -> VersionFiles:
        policy = self._folder / "versions" / version
        settings = json.loads((policy / "settings.json").read_text(encoding="utf-8"))
        return VersionFiles(version, policy, self._folder / "pool.yaml", settings)


def scripted(policy: Path, *_: Any) -> Scripted:
    """The Conductor of a folder."""
    values = json.loads((policy / "script.json").read_text(encoding="utf-8"))
    return Scripted(*values["completions"], **{key: value for key, value in values.items() if key != "completions"})


def main(folder: Path) -> None:
    loaded_version.load_conductor = scripted  # type: ignore[assignment]
    settings = load_settings(Serving, folder / "serving.yaml")
    app = ServingApp(Workspace(folder), settings, Files(folder), AccessControl.from_environment(HOST))
    run_server(app, HOST, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
