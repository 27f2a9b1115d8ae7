"""LiveCodeBench: contest programs judged by hidden tests; release V1 to train on, the V6 window held out.

Hub id, configurations and columns were read from lighteval 0.13.0 (`tasks/tasks/lcb/main.py`), whose
`lighteval/code_generation_lite` serves the releases as data files: the original
`livecodebench/code_generation_lite` is a loading script, which `datasets` no longer runs; its JSON-lines
files have the same columns and load as files. Not tried against the live hub.

Hidden tests are read without running anything: upstream packs them in two forms, from its loader (LiveCodeBench,
`lcb_runner/benchmarks/code_generation.py`): JSON text (`livecodebench/code_generation`), or base64 of zlib of a pickled
JSON text (`…/code_generation_lite`). The pickle is never loaded: its operations are listed, and a list that does more
than hold one text is refused.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickletools
import re
import zlib
from typing import Any

from ops.benchmarks.base import Benchmark, UpstreamItem
from ops.benchmarks.hub import HubDataset, UpstreamSplit
from ops.benchmarks.source_rows import Row

MAX_BYTES = 512 << 20
"""The maximum size of unpacked tests, because a few kilobytes of zlib can unpack to gigabytes."""
_TEXTS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"})
_FRAMES = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
"""The operations of a pickle around a text, which neither create nor call anything."""


def unpack_hidden_tests(packed: str) -> list[Any]:
    """Return the tests, each as `{input, output, testtype}`. Raises `ValueError` if `packed` has neither of the two
    forms."""
    text = packed if packed.lstrip().startswith("[") else _read_pickled_text(_inflate(packed))
    try:
        tests = json.loads(text)
    except RecursionError:
        raise ValueError("hidden tests are nested too deeply") from None
    if not isinstance(tests, list):
        raise ValueError("hidden tests are not a list")
    return tests


def _inflate(packed: str) -> bytes:
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(packed, validate=True), MAX_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"hidden tests cannot be unpacked: {error}") from None
    if not inflate.eof:
        raise ValueError(f"hidden tests cannot be unpacked: cut short, or over {MAX_BYTES >> 20} MiB")
    return data


def _read_pickled_text(data: bytes) -> str:
    """Return the only text in a pickle, read from the list of its operations without loading it."""
    texts = []
    try:
        for operation, argument, _ in pickletools.genops(io.BytesIO(data)):
            if operation.name in _TEXTS:
                texts.append(argument)
            elif operation.name not in _FRAMES:
                raise ValueError(f"a pickle that would do {operation.name}: refused")
    except UnicodeDecodeError as error:
        raise ValueError(f"hidden tests are not text: {error}") from None
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise ValueError(f"a pickle of {len(texts)} texts, not of one: refused")
    return texts[0]


def from_hub(row: Row) -> Row:
    """Convert a row with the columns question_id, question_content, starter_code, public_ and private_test_cases,
    metadata.

    The id consists of the release and the contest's own id, so that a question in two releases is recognised. Raises
    `RowError` if the tests cannot be read.
    """
    try:
        public = json.loads(row.text("public_test_cases"))
        # Hidden tests have megabytes, more than the bound of every other text; an export may be without them.
        packed = row.values.get("private_test_cases") or "[]"
        if not isinstance(packed, str):
            raise ValueError(f"{type(packed).__name__}, not text")
        private = unpack_hidden_tests(packed)
        name = json.loads(row.text_or_empty("metadata") or "{}").get("func_name")
    except (ValueError, RecursionError) as error:
        raise row.make_error(
            "private_test_cases", f"cannot be read ({error})", "Pin a revision, or use source: file"
        ) from None
    tests = {"kind": "functional" if name else "stdin", "fn_name": name, "public": public, "private": private}
    return row.with_values(
        id="/".join(filter(None, (row.text_or_empty("release"), row.text("question_id")))),
        question=row.values.get("question_content"),
        answer=None,
        tests=tests,
        source="lighteval/code_generation_lite",
    )


def adapt(row: Row) -> Row:
    """Append the code to start from to the question, and call a method if that code is a class."""
    starter, tests = row.text_or_empty("starter_code").strip("\n"), row.values.get("tests")
    if not starter.strip():
        return row
    if isinstance(tests, dict):
        tests = {**tests, "method": "class Solution" in starter}
    question = f"{row.text('question').strip()}\n\nStart from this code:\n```python\n{starter}\n```"
    return row.with_values(question=question, tests=tests)


BENCHMARK = Benchmark(
    name="livecodebench",
    position=40,
    has_hidden_tests=True,
    domain="code",
    grader="code",
    task="the statement, and the code to start from where there is some",
    licence="see the dataset's card; statements belong to the contest sites",
    citation="Jain et al. 2024, arXiv:2403.07974",
    cautions=(
        "A file with public tests only flatters every model: its scores are not pass@1 on the hidden tests.",
        "Cumulative releases overlap: V1 and the V6 window share no problem, but release_v6 holds V1.",
        "There are no reference programs: gold answers cannot be graded.",
    ),
    hub=HubDataset(
        "lighteval/code_generation_lite",
        {"train": UpstreamSplit("v1", "test", rows=400), "test": UpstreamSplit("v6", "test", rows=175)},
        columns=("question_id", "question_content", "starter_code", "public_test_cases", "private_test_cases"),
        documented_by="lighteval 0.13.0 (tasks/tasks/lcb/main.py)",
    ),
    releases={"train": "v1", "test": "v6"},
    from_hub=from_hub,
    adapt=adapt,
    # Contest ids are the same in every cumulative release; copies put a name or the release in front.
    upstream=UpstreamItem("LiveCodeBench", re.compile(r"(?:lcb-)?(?:(?:release_)?v\d+[-/:])?(\w+)$")),
)
