"""``tidelog-quorum FILE [--override key=value ...]``: one controller of the quorum."""

from __future__ import annotations

import sys

from tidelog_foundation.config.process import run_process


async def _serve(properties: dict[str, str]) -> None:
    # Imported late: a process may receive a stop signal as soon as it runs.
    from tidelog_foundation.config import parse_config
    from tidelog_foundation.config.endpoints import GRPC, HTTPS, listener_protocol
    from tidelog_foundation.security.ssl_settings import with_listener_settings
    from tidelog_quorum.server.config import QuorumConfig

    listener = listener_protocol(properties.get("listeners", GRPC))
    config = parse_config(QuorumConfig, with_listener_settings(properties, listener, (HTTPS.lower(),)))
    # Imported after the configuration is validated: gRPC takes most of the start time.
    from tidelog_quorum.server.process import serve

    await serve(config, properties)


def main() -> None:
    """Run a controller; exits with 0 after SIGTERM, 2 after a configuration error."""
    sys.exit(run_process(_serve, program="tidelog-quorum"))


if __name__ == "__main__":
    main()
