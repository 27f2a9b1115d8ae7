"""The script `podium`. It handles Ctrl-C before any import, so that the process ends without a traceback."""

import signal


def main() -> None:
    """Run the script `podium`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless a shell has set SIGINT to be ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pipelines.commands.main import execute
    from pipelines.startup import silence_tools

    silence_tools()  # before a command imports Dagster, whose assets would each print a warning
    execute()
