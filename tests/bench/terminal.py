"""Record `podium ask` as docs/images/terminal.svg (`make terminal`). Needs a champion (`make run`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from ops.core.workspace import Workspace

QUESTION = "Ana is taller than Bo. Chen is shorter than Bo. Dara is taller than Ana. Who is the tallest?"
COLUMNS = 58
"""Few, so that the picture is legible on a telephone."""
THEME = TerminalTheme(
    (13, 17, 23), (230, 237, 243),
    [(72, 79, 88), (255, 123, 114), (86, 185, 129), (210, 153, 34), (110, 168, 254), (188, 140, 255), (57, 197, 207),
     (177, 186, 196)],
)  # fmt: skip


def main() -> int:
    """Ask, and draw the terminal's content. Returns the exit status of `podium ask`."""
    done = subprocess.run(
        [Path(sys.executable).with_name("podium"), "ask", QUESTION],
        env={**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    if done.returncode:
        print(done.stderr, end="", file=sys.stderr)
        return done.returncode
    file = Workspace.find().root / "docs" / "images" / "terminal.svg"
    file.write_text(drawn(done.stdout), encoding="utf-8")
    print(f"written to {file}")
    return 0


def drawn(output: str) -> str:
    """Return the output of `podium ask` as SVG, in a font of the
    reader's machine (rich refers to a font on another host).
    """
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        console = Console(record=True, width=COLUMNS, file=nothing, force_terminal=True)
        console.print(Text.from_ansi(f'$ podium ask "{QUESTION}"\n{output.rstrip()}'))
        picture = console.export_svg(title="podium ask", theme=THEME, unique_id="podium")
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    picture = picture.replace("<svg ", f'<svg width="{10 * COLUMNS}" ', 1)
    return "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"


if __name__ == "__main__":
    sys.exit(main())
