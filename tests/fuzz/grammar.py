"""`python -m tests.fuzz.grammar [libFuzzer options]`: whatever the bytes, a workflow or a reason, and soon."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import atheris

from ops.core.workspace import Workspace

MODULES = ("grammar", "assignments", "literals", "escapes", "turn")

with atheris.instrument_imports(include=[f"ops.workflow.{name}" for name in MODULES]):
    from ops.workflow.grammar import parse_workflow
    from ops.workflow.literals import FormatFailure
    from tests.unit.workflow.test_grammar_corpus import corpus

SECONDS = 1.0
"""An input of the fuzzer's size takes about a thousandth of that."""


def target(data: bytes) -> None:
    """One input: a byte of settings, then the text."""
    if not data:
        return
    mode, text = data[0], data[1:].decode("utf-8", errors="surrogateescape" if data[0] & 1 else "replace")
    access = "fine_grained" if mode & 2 else "binary"
    began = time.process_time()  # the machine may be busy with something else
    parsed = parse_workflow(text, offered=1 + mode % 7, access=access, recursive=bool(mode & 4))  # type: ignore[arg-type]
    took = time.process_time() - began
    if took > SECONDS:
        raise AssertionError(f"{took:.1f} s for {len(text)} characters")
    if parsed.workflow is None:
        if not (isinstance(parsed.failure, FormatFailure) and parsed.detail):
            raise AssertionError(f"no reason: {parsed}")
        return
    again = parse_workflow(parsed.workflow.render(), offered=7, access=access, recursive=bool(mode & 4))  # type: ignore[arg-type]
    if again.workflow != parsed.workflow:
        raise AssertionError(f"{parsed} is rendered as something else: {again}")


def seeds(folder: Path) -> None:
    """The corpus as the fuzzer's first inputs, in the strict mode and in the others together."""
    for number, case in enumerate(corpus()):
        for mode in (0, 6):
            (folder / f"{number}-{mode}").write_bytes(bytes([mode + 6 * 7]) + case.text.encode())


WORDS = (
    "model_id", "subtasks", "access_list", "model_id = [", 'subtasks = ["', "access_list = [[", '["all"]', '"all"',
    "[]", ": list[int] = ", '"'*3, "'"*3, "\\", "\\x", "\\N{", "\\u", "# ", "\n", "r'", "f'", "b'", "0, ", "-1", "1.5",
    "`", "**", "Model ID:", "access list :", "“", "”", "‘", "’", "\\nu", "\\text", "\\\\", "\\u000a", "\nHuman:",
    "\nQuestion:", "\nModels on offer: Model 0", "<|im_end|>", "<|im_start|>assistant", '"subtasks":',
)  # fmt: skip
"""What the fuzzer puts in where it likes."""


def dictionary(file: Path) -> None:
    """`WORDS` in libFuzzer's form."""
    spelt = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in WORDS)
    file.write_text("".join(f'"{word}"\n' for word in spelt), encoding="ascii")


def main() -> None:
    warnings.simplefilter("error")
    atheris.enabled_hooks.add("RegEx")
    folder = Workspace.find().state / "fuzz"  # what was found is kept: the next run goes on from there
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    seeds(folder / "inputs")
    dictionary(folder / "words")
    options = [f"-dict={folder / 'words'}", f"-artifact_prefix={folder}/", str(folder / "inputs")]
    atheris.Setup([*sys.argv, *options], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
