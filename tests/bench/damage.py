"""Damage each kind of file of a finished workspace in five ways, and see what five commands make of it.

`python -m tests.bench.damage` makes a workspace by `podium run` of a recipe of seconds (or takes the one that `--base`
names), lists the kinds of files below `.podium` and `data` (files whose paths differ only in a key, a worker or a
benchmark are one kind), and damages one file of each kind: half of it is cut off, 100 bytes in the middle are
overwritten, it is emptied, deleted, or replaced by a folder. Then each command runs in a process of its own, on a fresh
copy. A cell of the table that is written says what happened:

- "right": the command ended with the numbers that it gave before the damage;
- "right, said": likewise, and a line names the file;
- "said": it ended with a line that names the file and a remedy, and left out the figures that it could not read; every
  other figure was right (the remedy is executed in the cells of the commands that refuse);
- "not read": no system call of the undamaged command names a file of this kind (shown by strace), so nothing was run;
- "remedy": it ended with one line that names the file, the remedy of that line was executed, and the command then gave
  the numbers from before;
- in capitals, everything else.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

RECIPE = "mini"
COMMANDS: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "ask": ("ask", "What is 2 + 3?"),
    "ledger": ("ledger",),
    "run": ("run", RECIPE),
    "report": ("report", RECIPE),
}
OVERWRITTEN = 100
"""Bytes in the middle of a file that are overwritten."""
_TIMEOUT_S = 3600.0
_ELSEWHERE = ("DAGSTER_HOME", "MLFLOW_TRACKING_URI", "PODIUM_CACHE_URL", "PODIUM_LEDGER_URL")
"""Environment variables that would lead a command to another place than the workspace."""
_CARRIED = (".podium", "data", "dvc.lock")
"""What a command may change of a workspace."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    error: str

    @property
    def text(self) -> str:
        return self.out + self.error


# ── damage ───────────────────────────────────────────────────────────────────


def cut(file: Path) -> None:
    """Leave the first half of the file."""
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    """Replace bytes in the middle of the file by random ones, the same each time."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(max(0, size // 2 - OVERWRITTEN // 2))
        opened.write(random.Random(size).randbytes(min(size, OVERWRITTEN)))


def empty(file: Path) -> None:
    """Leave nothing of the file's content."""
    os.truncate(file, 0)


def put_folder(file: Path) -> None:
    """Put a folder in the place of the file."""
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut in half": cut,
    "overwritten": overwrite,
    "empty": empty,
    "deleted": Path.unlink,
    "a folder": put_folder,
}


def kinds(root: Path) -> dict[str, Path]:
    """Return kind → one of its files, for the files of a workspace's `.podium` and `data`."""
    found: dict[str, Path] = {}
    for folder in ("data", ".podium"):
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and not file.is_symlink():
                name = kind(file.relative_to(root).as_posix())
                # The largest one of a kind is the least likely to be without content.
                if name not in found or found[name].stat().st_size < file.stat().st_size:
                    found[name] = file
    return found


_SAME_KIND = (
    (r"^(\.podium/mlflow/artifacts/models/[^/]+/artifacts/code)/.+\.(\w+)$", r"\1/…/*.\2"),
    (r"^(\.podium/data_docs)/.+\.(\w+)$", r"\1/…/*.\2"),
    (r"^(\.podium/locks)/.+$", r"\1/*.lock"),
    (r"^(\.podium/expectations/gx)/.+\.(\w+)$", r"\1/…/*.\2"),
    (r"^(data/responses)/[^/]+/[^/]+$", r"\1/*/*.parquet"),
    (r"^(data/raw)/[^/]+-(train|test)\.jsonl$", r"\1/*-\2.jsonl"),
    (r"^(data/(?:few_shots|knowledge|cold_start))/[^/]+\.(\w+)$", r"\1/*.\2"),
    (r"^(\.podium/scores/\w+)/[^/]+/[^/]+\.(parquet|parquet\.sha256)$", r"\1/*/*.\2"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "RUN"),
    (r"(?<![a-z])[0-9a-f]{8,}(?![a-z])", "KEY"),
    (r"(compute_logs)/\w+\.(\w+)$", r"\1/*.\2"),
    (r"/[\w-]+\.png$", "/*.png"),
    (r"(checkpoint|step|version)-\d+", r"\1-N"),
    (r"\d{8}T\d+\.\d+Z", "TIME"),
    (r"mlflow/artifacts/\d+/", "mlflow/artifacts/N/"),
)


def kind(path: str) -> str:
    """Return the path with a placeholder for everything by which files of one kind differ."""
    for pattern, replacement in _SAME_KIND:
        path = re.sub(pattern, replacement, path)
    return path


# ── the workspace ────────────────────────────────────────────────────────────


class Bench:
    """A finished workspace at `root`, which is restored from a copy beside it before each command."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._copy, self.backup = root.with_name(f"{root.name}.pristine"), root.with_name("backup.tar.gz")
        self._marks: dict[str, tuple[int, int, int]] = {}

    def make(self) -> None:
        """Make the workspace by `podium run`, a back-up of it, and the copy from which it is restored."""
        from tests import once
        from tests.conftest import make_project
        from tests.integration.test_lifecycle import write_recipe

        session = types.SimpleNamespace()
        once.begin_session(session)  # type: ignore[arg-type]
        self.root.parent.mkdir(parents=True, exist_ok=True)
        write_recipe(make_project(self.root))
        once.end_session(session)  # type: ignore[arg-type]
        for words in (COMMANDS["run"], COMMANDS["ask"]):
            ended = self.command(*words)
            assert ended.status == 0, ended.text

    def keep(self) -> None:
        """Note the present state as the one that is restored."""
        if not self.backup.is_file():
            ended = self.command("backup", str(self.backup))
            assert ended.status == 0, ended.text
        if not self._copy.is_dir():
            self._copy.mkdir()
            for name in _CARRIED:
                _copy(self.root / name, self._copy / name)
        self.restore()

    def restore(self) -> None:
        """Restore the state, unless nothing has changed."""
        if self._marks and self._marks == _marks(self.root):
            return
        for name in _CARRIED:
            place = self.root / name
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
            _copy(self._copy / name, place)
        self._marks = _marks(self.root)

    def put_back(self, file: Path) -> None:
        """Restore one file, as a person does from a copy of their own."""
        if file.is_dir():
            shutil.rmtree(file)
        _copy(self._copy / file.relative_to(self.root), file)

    def command(self, *words: str) -> Ended:
        """Run `podium` in a process of its own."""
        from tests.bench import damage  # under this name, and not as `__main__`, the other process finds it
        from tests.preloaded import call

        out, error = self.root.with_name("out.txt"), self.root.with_name("error.txt")
        process, connection = call(damage.run_podium, str(self.root), words, str(out), str(error))
        with connection:
            try:
                status = process.wait(_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                status = 124
        return Ended(status, *(file.read_text(encoding="utf-8", errors="replace") for file in (out, error)))


def run_podium(root: str, words: Sequence[str], out: str, error: str, _: Connection) -> None:
    """Be the command, with its output in files."""
    for number, file in ((1, out), (2, error)):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    for name in _ELSEWHERE:
        os.environ.pop(name, None)
    os.environ.update(PODIUM_ROOT=root, COLUMNS="120", OMP_NUM_THREADS="1")
    os.chdir(root)
    sys.argv = ["podium", *words]
    from pipelines.script import main

    main()


def _copy(source: Path, target: Path) -> None:
    if source.exists():
        subprocess.run(["cp", "-a", str(source), str(target)], check=True, timeout=300)


def _marks(root: Path) -> dict[str, tuple[int, int, int]]:
    files = (file for name in _CARRIED for file in ((root / name), *(root / name).rglob("*")) if file.exists())
    return {str(file): (stat.st_ino, stat.st_size, stat.st_mtime_ns) for file in files if (stat := file.stat())}


# ── what a command says ──────────────────────────────────────────────────────


def facts(bench: Bench, name: str, ended: Ended) -> list[str]:
    """Return the lines of a command's result that damage must not change."""
    if name == "report":
        pages = sorted((bench.root / ".podium" / "reports").glob(f"{RECIPE}-*.html"))
        text = pages[-1].read_text(encoding="utf-8", errors="replace") if pages else ""
        text = re.sub(r"data:[^\"')]+", "", re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL))
        text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?", "TIME", html.unescape(re.sub(r"<[^>]+>", "\n", text)))
        return [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line.rstrip() for line in ended.out.splitlines() if line.strip()]
    if name == "run":
        lines = [line for line in lines[_table(lines) :] if not re.match(r"(Time|Workers|Next|Page) ", line)]
    if name == "ask":
        lines = [line for line in lines if "responses from the cache" not in line]
    return lines


def _table(lines: Sequence[str]) -> int:
    return next((index for index, line in enumerate(lines) if line.startswith("system ")), len(lines))


class Known(NamedTuple):
    """What a command said before any damage, in two runs."""

    facts: list[str]
    changing: set[str]
    """Lines that differed between the two."""
    touched: set[str] | None
    """The kinds of files that the command opens or looks at; None where the program strace is absent."""

    def differences(self, now: Iterable[str]) -> list[str]:
        """Return the lines that are new, and those that are gone."""
        now = list(now)
        new = [f"+ {line}" for line in now if line not in self.facts and not self._changes(line)]
        gone = [f"- {line}" for line in self.facts if line not in now and not self._changes(line)]
        return gone + new

    def _changes(self, line: str) -> bool:
        return re.sub(r"\d", "0", line) in self.changing


def known(bench: Bench) -> dict[str, Known]:
    """Run each command twice on the undamaged workspace."""
    said = {}
    for name, words in COMMANDS.items():
        twice = []
        for _ in range(2):
            bench.restore()
            ended = bench.command(*words)
            assert ended.status == 0, (name, ended.text)
            twice.append(facts(bench, name, ended))
        assert twice[0], name
        changing = {re.sub(r"\d", "0", line) for line in set(twice[0]) ^ set(twice[1])}
        said[name] = Known(twice[0], changing, touched(bench, words))
    return said


def touched(bench: Bench, words: Sequence[str]) -> set[str] | None:
    """Return the kinds of files that a command, or a process that it starts, names in a system call.

    Returns None where the program strace is absent.
    """
    if shutil.which("strace") is None:
        return None
    bench.restore()
    trace = bench.root.with_name("trace.txt")
    program = str(Path(sys.executable).with_name("podium"))
    environment = {**os.environ, "PODIUM_ROOT": str(bench.root), "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    for name in _ELSEWHERE:
        environment.pop(name, None)
    ended = subprocess.run(
        ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=%file", "-o", str(trace), program, *words],
        cwd=bench.root, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: set[str] = set()
    with trace.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            for path in re.findall(r'"([^"]+)"', line):
                with suppress(ValueError):
                    found.add(kind((bench.root / path).relative_to(bench.root).as_posix()))
    return found


# ── cells ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Cell:
    """What one command made of one damage."""

    kind: str
    damage: str
    command: str
    verdict: str
    said: str = ""
    """The line that names the file."""
    remedy: str = ""
    """What was done as the line says."""
    detail: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.verdict.isupper()


def cell(bench: Bench, kind: str, file: Path, damage: str, command: str, before: Known) -> Cell:
    """Damage the file, run the command, execute the remedy that it names."""
    if before.touched is not None and kind not in before.touched:
        return Cell(kind, damage, command, "not read")
    bench.restore()
    with suppress(FileNotFoundError):
        DAMAGES[damage](file)
    ended = bench.command(*COMMANDS[command])
    line = _line_about(ended.text, bench.root, file)

    def of(verdict: str, remedy: str = "", detail: str = "") -> Cell:
        return Cell(kind, damage, command, verdict, line, remedy, detail)

    if "Traceback (most recent call last)" in ended.text:
        return of("TRACEBACK", detail=ended.text[-1500:])
    if ended.status == 124:
        return of("DOES NOT END")
    if ended.status == 0:
        different = before.differences(facts(bench, command, ended))
        paid = _paid(ended.text) if command == "run" else ""
        if not different:
            return of("right, said" if line else "right", detail=paid)
        if line and not any(each.startswith("+ ") and line not in each for each in different):
            return of("said", detail="\n".join(different[:20]))
        return of("OTHER NUMBERS, SAID" if line else "FALSE", detail="\n".join([paid, *different[:20]]))
    errors = [part for part in ended.error.splitlines() if part.startswith("error: ")]
    if len(errors) != 1:
        return of("NO ERROR OF ONE LINE", detail=ended.text[-1500:])
    if not line:
        return of("FILE NOT NAMED", detail=errors[0])
    line = errors[0]
    done = _execute(bench, errors[0], file)
    if not done:
        return of("NO REMEDY", detail=errors[0])
    again = bench.command(*COMMANDS[command])
    different = before.differences(facts(bench, command, again)) if again.status == 0 else [again.text[-1500:]]
    if different:
        return of("REMEDY FAILED", "; ".join(done), "\n".join(different[:20]))
    return of("remedy", "; ".join(done), _paid(again.text) if command == "run" else "")


def _paid(text: str) -> str:
    found = re.search(r"^Workers +(.+)$", text, re.MULTILINE)
    return "" if found is None or found[1].startswith("no call made") else found[1]


def _line_about(text: str, root: Path, file: Path) -> str:
    """Return the first line that names the file, or the folder of a policy, run or model that it belongs to."""
    joined = text.replace("\n", " ")
    inside = file.relative_to(root)
    # The code of a registered version has one hash, so that a message names its folder.
    folders = [str(root / folder) for folder in (inside.parent, *inside.parent.parents) if len(folder.parts) > 2]
    names = [str(file), str(inside), file.name, str(file.parent), *folders]
    for name in names:
        if name in joined:
            return next((line for line in text.splitlines() if name in line), name)
    return ""


def _execute(bench: Bench, message: str, file: Path) -> list[str]:
    """Do what the message says; return what was done."""
    done: list[str] = []
    for line in re.findall(r"`(podium [^`]+)`", message):
        words = [str(bench.backup) if word in ("FILE", "BACKUP") else word for word in shlex.split(line)[1:]]
        words = [RECIPE if word == "RECIPE" else word for word in words]
        if words == ["restore"]:
            words.append(str(bench.backup))
        if words == ["run"]:
            words.append(RECIPE)
        if "--reason" not in words and words[0] == "rollback":
            words += ["--reason", "damaged"]
        ended = bench.command(*words)
        done.append(f"podium {' '.join(words)} ({ended.status})")
        if ended.status == 0:
            return done
    named = next((Path(found) for found in re.findall(r"error: (/[^:]+):", message)), file)
    if re.search(r"Put (a|the) (text )?file (there|in place|back)|Save (it|the file) as UTF-8", message):
        bench.put_back(named)
        done.append(f"put {named.relative_to(bench.root)} back")
    elif re.search(r"(Delete|Remove|Move|move) (it|the file|the folder|that file|that folder)", message):
        if named.exists():
            named.rename(named.with_name(f"{named.name}.moved-away"))
        done.append(f"moved {named.relative_to(bench.root)} away")
    elif re.search(r"(same command|run again|Run it again)", message):
        done.append("the same command again")
    return done


# ── the table ────────────────────────────────────────────────────────────────


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """Give the lines of a Markdown table: a row for each kind and damage, and the sums of verdicts before it."""
    sums: dict[str, int] = {}
    for each in cells:
        sums[each.verdict] = sums.get(each.verdict, 0) + 1
    yield ", ".join(f"{count} {verdict}" for verdict, count in sorted(sums.items(), key=lambda item: -item[1]))
    yield ""
    yield f"| file | damage | {' | '.join(COMMANDS)} |"
    yield "| --- " * (2 + len(COMMANDS)) + "|"
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for each in cells:
        rows.setdefault((each.kind, each.damage), {})[each.command] = each.verdict
    for (kind, damage), own in rows.items():
        yield f"| `{kind}` | {damage} | {' | '.join(own.get(name, '') for name in COMMANDS)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--root", type=Path, default=Path(".podium/damage/project").resolve(), help="the workspace")
    parser.add_argument("--out", type=Path, default=Path(".podium/damage.jsonl"), help="a line of JSON for each cell")
    parser.add_argument("--kinds", default="", help="a regular expression: only the kinds that it finds")
    parser.add_argument("--damages", default=",".join(DAMAGES))
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--list", action="store_true", help="only list the kinds")
    parser.add_argument("--table", action="store_true", help="only write the table of the cells that are there")
    chosen = parser.parse_args()
    if not chosen.table:
        _measure(chosen)
    lines = chosen.out.read_text(encoding="utf-8").splitlines() if chosen.out.is_file() else []
    latest = {tuple(values[key] for key in ("kind", "damage", "command")): Cell(**values)
              for values in map(json.loads, lines)}  # fmt: skip
    page = chosen.out.with_suffix(".md")
    page.write_text("\n".join(table(list(latest.values()))) + "\n", encoding="utf-8")
    print(f"written to {page}")
    return int(any(each.is_wrong for each in latest.values()))


def _measure(chosen: argparse.Namespace) -> None:
    bench = Bench(chosen.root.resolve())
    if not bench.root.is_dir():
        bench.make()
    bench.keep()
    files = {name: file for name, file in kinds(bench.root).items() if re.search(chosen.kinds, name)}
    if chosen.list:
        print("\n".join(files))
        return
    commands = [name for name in COMMANDS if name in chosen.commands.split(",")]
    before = known(bench)
    with chosen.out.open("a", encoding="utf-8") as out:
        for number, (name, file) in enumerate(files.items(), 1):
            size = file.stat().st_size
            for damage in chosen.damages.split(","):
                if size == 0 and damage not in ("deleted", "a folder"):
                    continue
                cells = [cell(bench, name, file, damage, command, before[command]) for command in commands]
                out.writelines(json.dumps(asdict(each)) + "\n" for each in cells)
                out.flush()
                verdicts = ", ".join(f"{each.command}: {each.verdict}" for each in cells)
                print(f"{number} of {len(files)}  {name}, {damage}: {verdicts}", flush=True)
                bench.restore()


if __name__ == "__main__":
    sys.exit(main())
