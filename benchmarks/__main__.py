"""The entry point of the benchmarks: ``python -m benchmarks [--only log recovery] [--quick]``."""

import sys

from benchmarks.suite import main

if __name__ == "__main__":
    sys.exit(main())
