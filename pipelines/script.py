"""The script `podium`. Nothing is imported before Ctrl-C ends the process without a traceback."""

import signal


def main() -> None:
    """What the script `podium` calls."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pipelines.commands.main import execute
    from pipelines.quiet import quiet

    quiet()  # before a command imports Dagster, whose assets would print a warning each
    execute()
