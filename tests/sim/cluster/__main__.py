"""``python -m sim.cluster``: many seeds of the simulation of whole clusters, or one of them again. See ``make sim``."""

from __future__ import annotations

import argparse
import sys

from sim import command
from sim.cluster.sweep import CLUSTERS


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.cluster", description=__doc__)
    return command.main(CLUSTERS, parser, 5_000, arguments)


if __name__ == "__main__":
    sys.exit(main())
