"""``tidelog-node FILE [--override key=value ...]``: runs one storage node."""

from __future__ import annotations

import sys

from tidelog_foundation.config.process import run_process


def main() -> None:
    """Run the node until it is stopped and exit with its code."""
    sys.exit(run_process(_serve))


async def _serve(properties: dict[str, str]) -> None:
    # Imported late: a wrong command line is told without loading gRPC.
    from tidelog_node.server.process import serve

    await serve(properties)


if __name__ == "__main__":
    main()
