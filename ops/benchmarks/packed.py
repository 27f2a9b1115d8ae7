"""LiveCodeBench's hidden tests as upstream packs them, read without running what somebody else wrote.

Upstream's two forms, from its loader (LiveCodeBench, `lcb_runner/benchmarks/code_generation.py`): JSON text
(`livecodebench/code_generation`), or base64 of zlib of a pickled JSON text (`…/code_generation_lite`). The pickle is
never loaded: its operations are listed, and a list that does more than hold one text is refused.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickletools
import zlib
from typing import Any

MAX_BYTES = 512 << 20
"""Bound of what is unpacked: a few kilobytes of zlib can name gigabytes."""
_TEXTS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"})
_FRAMES = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
"""What stands around a text and neither makes nor calls anything."""


def hidden_tests(packed: str) -> list[Any]:
    """The tests, `{input, output, testtype}` each. Raises `ValueError` where `packed` is in neither form."""
    text = packed if packed.lstrip().startswith("[") else _text_of_pickle(_unpacked(packed))
    try:
        tests = json.loads(text)
    except RecursionError:
        raise ValueError("hidden tests are nested too deeply") from None
    if not isinstance(tests, list):
        raise ValueError("hidden tests are no list")
    return tests


def _unpacked(packed: str) -> bytes:
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(packed, validate=True), MAX_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"hidden tests cannot be unpacked: {error}") from None
    if not inflate.eof:
        raise ValueError(f"hidden tests cannot be unpacked: cut short, or over {MAX_BYTES >> 20} MiB")
    return data


def _text_of_pickle(data: bytes) -> str:
    """The one text that a pickle holds, read off its operations."""
    texts = []
    try:
        for operation, argument, _ in pickletools.genops(io.BytesIO(data)):
            if operation.name in _TEXTS:
                texts.append(argument)
            elif operation.name not in _FRAMES:
                raise ValueError(f"a pickle that would do {operation.name}: refused")
    except UnicodeDecodeError as error:
        raise ValueError(f"hidden tests are no text: {error}") from None
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise ValueError(f"a pickle of {len(texts)} texts, not of one: refused")
    return texts[0]
