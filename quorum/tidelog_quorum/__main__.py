"""``tidelog-quorum FILE [--override key=value ...]``: one controller of the quorum."""

from __future__ import annotations

import sys

from tidelog_foundation.config.process import run_process


async def _serve(properties: dict[str, str]) -> None:
    # Imported late: a process may receive a stop signal as soon as it runs.
    from tidelog_quorum.server.config import parse_quorum_config

    config = parse_quorum_config(properties)
    # Imported after the configuration is validated: gRPC takes most of the start time.
    from tidelog_quorum.server.process import serve

    await serve(config, properties)


def main() -> None:
    """Run a controller; exits with 0 after SIGTERM, 2 after a configuration error."""
    sys.exit(run_process(_serve, program="tidelog-quorum"))


if __name__ == "__main__":
    main()
