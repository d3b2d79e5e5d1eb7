"""The settings of a node's Kafka listeners.

Keys and defaults are Kafka's (SocketServerConfigs) unless stated otherwise.
"""

from __future__ import annotations

from types import MappingProxyType

from tidelog_foundation.config import any_of, at_least, between, int_setting, one_of, setting
from tidelog_foundation.config.validators import parse_address_limits
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.quotas.rate import Windows
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.server.transaction_config import TransactionCoordinatorConfig

_INT32_MAX = 2**31 - 1
_at_least_one_or_the_systems = any_of(one_of(-1), at_least(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaListenerConfig(TransactionCoordinatorConfig):
    """The settings for connections of Kafka clients in a node's properties file. All of them are fixed at run time."""

    socket_request_max_bytes: int = int_setting(
        100 * 1024**2,
        "The most bytes of one request. A Kafka client's connection that announces more is closed, and a gRPC "
        "request that is larger is refused with RESOURCE_EXHAUSTED.",
        between(1, _INT32_MAX),
    )
    connections_max_idle_ms: int = setting(
        600_000,
        "The time after which a connection is closed if it is idle, or if a Kafka client does not read responses "
        "that are ready, in milliseconds.",
        at_least(1),
    )
    socket_send_buffer_bytes: int = int_setting(
        -1,
        "SO_SNDBUF of connections of Kafka clients. Kafka's default is 102400; -1 lets the operating system "
        "choose the size.",
        _at_least_one_or_the_systems,
    )
    socket_receive_buffer_bytes: int = int_setting(
        -1,
        "SO_RCVBUF of connections of Kafka clients. Kafka's default is 102400; -1 lets the operating system "
        "choose the size.",
        _at_least_one_or_the_systems,
    )

    quota_window_num: int = int_setting(
        11, "The number of windows over which the rates of client quotas are measured.", at_least(1)
    )
    quota_window_size_seconds: int = int_setting(1, "The length of a window of client quotas, in seconds.", at_least(1))

    def quota_windows(self) -> Windows:
        """Return the windows of client quotas."""
        return Windows(self.quota_window_num, self.quota_window_size_seconds * 1_000)

    def listener_limits(self) -> ListenerLimits:
        """Return the limits of the listeners."""
        return ListenerLimits(
            request_max_bytes=self.socket_request_max_bytes,
            max_connections=self.max_connections,
            max_connections_per_ip=self.max_connections_per_ip,
            max_connections_of_ips=MappingProxyType(parse_address_limits(self.max_connections_per_ip_overrides)),
            max_creation_rate=self.max_connection_creation_rate,
            max_idle_s=self.connections_max_idle_ms / 1000,
            send_buffer_bytes=self.socket_send_buffer_bytes,
            receive_buffer_bytes=self.socket_receive_buffer_bytes,
        )
