"""``python -m sim``: many seeds of the Raft simulation, or one of them again. See ``make sim``."""

from __future__ import annotations

import argparse
import sys

from sim import command
from sim.sweep import RAFT


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    return command.main(RAFT, argparse.ArgumentParser(prog="python -m sim", description=__doc__), 20_000, arguments)


if __name__ == "__main__":
    sys.exit(main())
