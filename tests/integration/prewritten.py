"""The trainer's process, whose policy writes what a file says: runs then differ in how they are computed alone.

`python -m tests.integration.prewritten --run FOLDER`: FOLDER/rollouts.json holds a list for each time that a step
writes (once, or with rounds twice): the completions, as lists of token ids, which all ranks' prompts take in turn.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

from ops.training.grpo.__main__ import main
from ops.training.step.timed_trainer import TimedTrainer

FILE = "rollouts.json"


def patch(folder: Path) -> None:
    """Make every step generate the texts of the file."""
    turns: list[list[list[int]]] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    turn, rank = cycle(turns), int(os.environ.get("RANK", "0"))

    def written(self: Any, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        said, before = next(turn), rank * len(prompt_ids)
        return [list(said[(before + place) % len(said)]) for place in range(len(prompt_ids))], None

    TimedTrainer.generate_turn = written  # type: ignore[method-assign]


if __name__ == "__main__":
    patch(Path(sys.argv[sys.argv.index("--run") + 1]))
    main()
