"""The entry point of the ``tidelog`` command."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line; exit code 1 is an error of the cluster, 2 wrong usage, 130 an interruption."""
    # Loading takes a moment; until it ends, Ctrl-C has nothing to clean up and ends the process without a traceback. A
    # background job of a script starts with Ctrl-C ignored, and must keep ignoring it.
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not is_ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from tidelog_cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(f"tidelog: error: {error.name} is not installed: pip install 'tidelog[cli]'")
    if not is_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()
