"""Insert every fault of mutations.yaml into a copy of the code; its tests must fail (`make mutations`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_suffix(".yaml")
COPIED = (
    "assets", "config", "data", "docs", "mlflow", "ops", "pipelines", "tests", "pyproject.toml", "dvc.yaml",
    "dagster.yaml", "Makefile",
)  # fmt: skip
TIMEOUT_S = 900


def copy_of_the_code(place: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", "responses", "raw"))
        else:
            shutil.copyfile(source, place / name)


def first_failure(place: Path, tests: list[str]) -> str:
    """Return the first test that fails in that copy; "" if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    failed = [line.split(" ", 2)[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in (0, 1) or (done.returncode == 1 and not failed):
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[0] if failed else ""


def main() -> int:
    """Print a line for each fault; exit code 1 if one was not detected."""
    areas: list[dict[str, Any]] = yaml.safe_load(FAULTS.read_text(encoding="utf-8"))
    count = missed = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "code"
        place.mkdir()
        copy_of_the_code(place)
        for area in areas:
            if failure := first_failure(place, area["tests"]):
                raise SystemExit(f"{failure} fails without a fault")
            for name, old, new in area["faults"]:
                file = place / name
                text = file.read_text(encoding="utf-8")
                if text.count(old) != 1:
                    raise SystemExit(f"{name} holds {old!r} {text.count(old)} times, not once: change {FAULTS.name}")
                file.write_text(text.replace(old, new), encoding="utf-8")
                failure = first_failure(place, area["tests"])
                file.write_text(text, encoding="utf-8")
                count, missed = count + 1, missed + (not failure)
                print(f"{area['area']:9} {old!r} → {new!r}: {failure or 'NOT NOTICED'}", flush=True)
    print(f"{count - missed} of {count} faults were noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
