"""``tidelog-node FILE [--override key=value ...] [--processes N]``: runs one storage node, or several."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidelog_foundation.config.process import run_process


def main() -> None:
    """Run the node until it is stopped and exit with its code."""
    sys.exit(run_process(serve_file, supervise=supervise))


async def serve_file(properties: dict[str, str]) -> None:
    """Run a node with the settings of a properties file until the process is told to stop."""
    # Imported late: a wrong command line is told without loading gRPC.
    from tidelog_node.server.config import read_node_properties
    from tidelog_node.server.startup import serve

    await serve(read_node_properties(properties))


async def supervise(properties: dict[str, str], count: int, arguments: Sequence[str]) -> None:
    """Run several nodes, each in a process of its own, until this process is told to stop."""
    from tidelog_node.processes import supervisor

    await supervisor.supervise(properties, count, arguments)


if __name__ == "__main__":
    main()
