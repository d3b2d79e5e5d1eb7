"""``tidelog-quorum FILE [--override key=value ...]``: one controller of the quorum."""

from __future__ import annotations

import sys

from tidelog.config.process import run_process


async def _serve(properties: dict[str, str]) -> None:
    # Imported when the command line is known to be right: gRPC takes most of the start.
    from tidelog_quorum.server.process import serve

    await serve(properties)


def main() -> None:
    """Run a controller; exits with 0 after SIGTERM, 2 after a configuration error."""
    sys.exit(run_process(_serve))


if __name__ == "__main__":
    main()
