"""``tidelog-server FILE [--override key=value ...]``: runs a node, a controller, or both, by ``process.roles``."""

from __future__ import annotations

import sys

from tidelog_foundation.config.kafka_file import BROKER, CONTROLLER, PROCESS_ROLES, roles_of
from tidelog_foundation.config.process import run_process
from tidelog_foundation.errors import ConfigError


def main() -> None:
    """Run the server until it is stopped and exit with its code."""
    sys.exit(run_process(_serve, program="tidelog-server"))


async def _serve(properties: dict[str, str]) -> None:
    # Imported late: a wrong command line is told without loading gRPC.
    roles = roles_of(properties)
    if not roles:
        raise ConfigError(f'missing required configuration "{PROCESS_ROLES}": {BROKER}, {CONTROLLER} or both')
    if roles == {BROKER}:
        from tidelog_node.__main__ import serve_file as serve
    elif roles == {CONTROLLER}:
        from tidelog_quorum.__main__ import serve_file as serve
    else:
        from tidelog_server.combined import serve_file as serve
    await serve(properties)


if __name__ == "__main__":
    main()
