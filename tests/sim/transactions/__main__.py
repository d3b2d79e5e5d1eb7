"""``python -m sim.transactions``: many seeds of the simulation of transactions, or one of them again."""

from __future__ import annotations

import argparse
import sys

from sim import command
from sim.transactions.sweep import TRANSACTIONS


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.transactions", description=__doc__)
    return command.main(TRANSACTIONS, parser, 2_000, arguments)


if __name__ == "__main__":
    sys.exit(main())
