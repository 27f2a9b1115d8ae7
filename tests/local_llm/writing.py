"""Writes chats by vLLM in this process, which must be a Python that has it: FOLDER CHATS TEXTS, files of JSON."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

from ops.conductor.writer import load_conductor
from ops.config import VLLM


def main(folder: Path, chats: Path, texts: Path) -> None:
    """Greedily, then drawn twice with one seed and once with another."""
    asked = json.loads(chats.read_text(encoding="utf-8"))
    with closing(load_conductor(folder, VLLM)) as conductor:
        drawn = [conductor.write(asked, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
        written = {"greedy": conductor.write(asked), "drawn": drawn, "nothing": conductor.write([])}
    texts.write_text(json.dumps(written), encoding="utf-8")


if __name__ == "__main__":  # the engine is a process of its own, which imports this file again
    main(*map(Path, sys.argv[1:]))
