"""The entry point of the demo: ``python -m examples.flights``."""

import sys


def run() -> int:
    """Run the demo. Ctrl-C ends it with one line at any point, even while modules are imported."""
    try:
        from examples.flights.demo import main

        return main()
    except KeyboardInterrupt:
        print("interrupted; every process of the cluster has ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
