"""A Tidelog server in a Docker container, for tests with testcontainers.

The module needs ``pip install tidelog[testcontainers]`` and a Docker engine. It needs no server packages on the host:
the image has them.
"""

from __future__ import annotations

import http.client
import shlex
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.release import version

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.exceptions import ContainerStartException
except ModuleNotFoundError as missing:
    if str(missing.name).partition(".")[0] != "testcontainers":
        raise
    _TEXT = "TidelogContainer needs testcontainers, which is not installed: pip install 'tidelog[testcontainers]'"
    raise ModuleNotFoundError(_TEXT, name=missing.name) from missing

if TYPE_CHECKING:
    from typing import Self

__all__ = ["TidelogContainer"]

KAFKA_PORT: Final = 9092
TIDELOG_PORT: Final = 9094
_NETWORK_KAFKA_PORT: Final = 19092
_NETWORK_TIDELOG_PORT: Final = 19094
_CONTROLLER_PORT: Final = 9093
HEALTH_PORT: Final = 9404
_SCRIPT: Final = "/tmp/tidelog-server.sh"
_POLL_INTERVAL_S: Final = 0.1
_CALL_TIMEOUT_S: Final = 2.0
_LOG_LINES: Final = 30

_DEFAULTS: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 5,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 5,
    "transaction.state.log.replication.factor": 1,
}
"""Settings of a single server whose first group and first transaction start quickly."""
_OWN: Final = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metrics.listeners",
        "node.id",
        "process.roles",
    }
)
"""Settings that follow from the ports of the container."""


class TidelogContainer(DockerContainer):
    """A container with one server, which is controller and node, for tests.

    ::

        with TidelogContainer() as tidelog:
            producer = Producer({"bootstrap.servers": tidelog.get_bootstrap_server()})

    :meth:`start`, which the context manager calls, returns when the server is ready. Docker chooses the ports of the
    host. The data goes with the container. ``kwargs`` are those of testcontainers' ``DockerContainer``.

    Clients in other containers of the same network (``with_network``) connect to
    :meth:`get_network_bootstrap_server`.
    """

    def __init__(self, image: str | None = None, **kwargs: Any) -> None:
        """Create a container of ``image``, by default ``tidelog:VERSION`` with the version of this package."""
        super().__init__(image or f"tidelog:{version()}", **kwargs)
        self._config: dict[str, object] = dict(_DEFAULTS)
        self.with_exposed_ports(KAFKA_PORT, TIDELOG_PORT, HEALTH_PORT)

    def with_config(self, config: Mapping[str, object]) -> Self:
        """Add settings of the server by their keys, such as ``{"message.max.bytes": 1_000}``. Later values win.

        Raises:
            ValueError: The container sets a key itself.
        """
        if own := sorted(_OWN & set(config)):
            raise ValueError(f"TidelogContainer sets {', '.join(own)} itself")
        self._config.update(config)
        return self

    def get_bootstrap_server(self) -> str:
        """Return the address for Kafka's clients on the host."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(KAFKA_PORT)}"

    def get_tidelog_bootstrap_server(self) -> str:
        """Return the address for Tidelog's clients on the host."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(TIDELOG_PORT)}"

    def get_network_bootstrap_server(self) -> str:
        """Return the address for Kafka's clients in containers of the same network."""
        return f"{self._network_host()}:{_NETWORK_KAFKA_PORT}"

    def get_network_tidelog_bootstrap_server(self) -> str:
        """Return the address for Tidelog's clients in containers of the same network, and in this one."""
        return f"{self._network_host()}:{_NETWORK_TIDELOG_PORT}"

    def start(self, timeout_s: float = 60.0) -> Self:
        """Start the server and wait until it is ready.

        Raises:
            ContainerStartException: The server ended; the message has its exit code and its last log lines.
            TimeoutError: The server was not ready in time; the message has the reason and its last log lines.
        """
        # The advertised addresses have the host's ports, which Docker chooses when the container starts.
        self.with_command(["sh", "-c", f"until [ -e {_SCRIPT} ]; do sleep 0.05; done; exec sh {_SCRIPT}"])
        super().start()
        try:
            self._write_script()
            self._wait_ready(timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def _network_host(self) -> str:
        aliases = self._network_aliases or []
        # A network resolves the short id, which is the container's own host name too.
        return aliases[0] if aliases else str(self.get_wrapped_container().short_id)

    def _write_script(self) -> None:
        """Write the command that starts the server, in one step and as the server's user; the root may be read-only."""
        overrides = [word for key, value in self._settings().items() for word in ("--override", f"{key}={value}")]
        command = shlex.join(["exec", "tidelog-server", "/dev/null", *overrides])
        steps = f"printf %s {shlex.quote(command)} > {_SCRIPT}.new && mv {_SCRIPT}.new {_SCRIPT}"
        result = self.exec(["sh", "-c", steps])
        if result.exit_code != 0:
            reason = result.output.decode(errors="replace").strip()
            raise ContainerStartException(f"cannot write {_SCRIPT} in {self.image}: {reason}{self._log_tail()}")

    def _settings(self) -> dict[str, object]:
        advertised = {
            "PLAINTEXT": self.get_bootstrap_server(),
            "GRPC": self.get_tidelog_bootstrap_server(),
            "NETWORK": self.get_network_bootstrap_server(),
            "GRPC_NETWORK": self.get_network_tidelog_bootstrap_server(),
        }
        ports = {
            "PLAINTEXT": KAFKA_PORT,
            "GRPC": TIDELOG_PORT,
            "NETWORK": _NETWORK_KAFKA_PORT,
            "GRPC_NETWORK": _NETWORK_TIDELOG_PORT,
            "CONTROLLER": _CONTROLLER_PORT,
        }
        return {
            "cluster.id": "testcontainers",
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{_CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "GRPC_NETWORK",
            "listeners": ",".join(f"{name}://0.0.0.0:{port}" for name, port in ports.items()),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in advertised.items()),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,NETWORK:PLAINTEXT,GRPC:GRPC,GRPC_NETWORK:GRPC,CONTROLLER:GRPC"
            ),
            "log.dirs": "/var/lib/tidelog/data",
            "metrics.listeners": f"HTTP://0.0.0.0:{HEALTH_PORT}",
            **self._config,
        }

    def _wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        host, port = self.get_container_host_ip(), self.get_exposed_port(HEALTH_PORT)
        while reason := _why_not_ready(host, port):
            container = self.get_wrapped_container()
            container.reload()
            if container.status not in ("created", "running"):
                code = container.attrs["State"]["ExitCode"]
                raise ContainerStartException(f"{self.image} ended with exit code {code}{self._log_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.image} was not ready after {timeout_s:g} s: {reason}{self._log_tail()}")
            time.sleep(_POLL_INTERVAL_S)

    def _log_tail(self) -> str:
        lines = self.get_wrapped_container().logs(tail=_LOG_LINES).decode(errors="replace").rstrip()
        return f"; it logged last:\n{lines}" if lines else "; it logged nothing"


def _why_not_ready(host: str, port: int) -> str:
    """Return the server's reasons; empty when it is ready."""
    connection = http.client.HTTPConnection(host, port, timeout=_CALL_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"its health check at {host}:{port} does not answer ({type(error).__name__})"
    finally:
        connection.close()
    return "" if response.status == http.HTTPStatus.OK else "; ".join(text.splitlines())
