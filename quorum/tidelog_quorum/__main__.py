"""``tidelog-quorum FILE [--override key=value ...]``: one controller of the quorum."""

from __future__ import annotations

import sys

from tidelog_foundation.config.process import run_process


async def serve_file(properties: dict[str, str]) -> None:
    """Run a controller with the settings of a properties file until the process is told to stop."""
    # Imported late: a process may receive a stop signal as soon as it runs.
    from tidelog_quorum.server.config import parse_quorum_config, read_controller_properties

    properties = read_controller_properties(properties)
    config = parse_quorum_config(properties)
    # Imported after the configuration is validated: gRPC takes most of the start time.
    from tidelog_quorum.server.process import serve

    await serve(config, properties)


def main() -> None:
    """Run a controller; exits with 0 after SIGTERM, 2 after a configuration error."""
    sys.exit(run_process(serve_file, program="tidelog-quorum"))


if __name__ == "__main__":
    main()
