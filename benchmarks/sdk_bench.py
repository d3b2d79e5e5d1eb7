"""The client SDK: the cost of a call and of a message, the gain of whole columns, the throughput of one node, and the
import time.

It uses one controller and one node in processes of their own.
"""

from __future__ import annotations

from benchmarks import sdk_calls, sdk_columns, sdk_consume, sdk_import, sdk_stream
from benchmarks.options import Options
from benchmarks.result import Result
from benchmarks.suite import run_alone
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster

_TOPICS = {
    "calls": 1,
    sdk_columns.WRITTEN: 1,
    sdk_columns.READ: sdk_columns.READ_PARTITIONS,
    sdk_consume.LARGE: sdk_consume.PARTITIONS,
    sdk_consume.SMALL: sdk_consume.PARTITIONS,
    "stream": 1,
}


def run(options: Options) -> list[Result]:
    """Measure the SDK next to confluent-kafka and to bare gRPC."""
    options.say("starting one controller and one node")
    with LocalCluster(controllers=1, nodes=1) as cluster:
        servers = cluster.bootstrap_servers
        with AdminClient({"bootstrap.servers": servers}) as admin:
            for future in admin.create_topics([NewTopic(name, n, 1) for name, n in _TOPICS.items()]).values():
                future.result(30)
        results = sdk_calls.run(options, servers)
        results += sdk_consume.run(options, servers, cluster.kafka_bootstrap_servers)
        results += sdk_columns.run(options, servers)
        results += sdk_stream.run(options, servers)
    return [*results, *sdk_import.run(options)]


if __name__ == "__main__":
    run_alone(run)
