"""The entry point of the ``tidelog`` command."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line; exit code 1 is an error of the cluster, 2 one of usage, 130 an interruption."""
    # Loading takes a moment, in which Ctrl-C has nothing to tidy up: it ends the process without a traceback.
    # A background job of a script is started with Ctrl-C ignored, and goes on ignoring it.
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
