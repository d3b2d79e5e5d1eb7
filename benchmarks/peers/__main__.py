"""The entry point of the comparison with Kafka: ``python -m benchmarks.peers [--quick] [--only produce latency]``."""

import sys

from benchmarks.peers.suite import main

if __name__ == "__main__":
    sys.exit(main())
