"""Runs the demo: ``python -m examples.flights``."""

import sys


def run() -> int:
    """Run the demo; Ctrl-C at any point, also while modules are being loaded, ends it with one line."""
    try:
        from examples.flights.demo import main

        return main()
    except KeyboardInterrupt:
        print("interrupted; every process of the cluster has ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
