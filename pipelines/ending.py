"""How a command that serves until Ctrl-C is ended by those who have no keyboard."""

from __future__ import annotations

import signal


def ends_like_ctrl_c() -> None:
    """SIGTERM and SIGINT raise `KeyboardInterrupt` in this process from now on, also where a shell has started it in
    the background with SIGINT ignored."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
