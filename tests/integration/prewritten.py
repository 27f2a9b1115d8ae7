"""The trainer's process, whose policy writes what a file says: runs then differ in how they are computed alone.

`python -m tests.integration.prewritten --run FOLDER`: FOLDER/rollouts.json holds the completions of every group, as
lists of token ids.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ops.training.grpo import main
from ops.training.timed_trainer import TimedTrainer

FILE = "rollouts.json"


def patch(folder: Path) -> None:
    """Let every group be that of the file."""
    group: list[list[int]] = json.loads((folder / FILE).read_text(encoding="utf-8"))

    def written(self: Any, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        return [list(group[place % len(group)]) for place in range(len(prompt_ids))], None

    TimedTrainer._generate_single_turn = written  # type: ignore[method-assign]


if __name__ == "__main__":
    patch(Path(sys.argv[sys.argv.index("--run") + 1]))
    main()
