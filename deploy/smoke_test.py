"""The test of an installed distribution: its compiled modules, its command, and a cluster that returns a record.

``python smoke_test.py [--without-node]`` needs the extras ``cli``, ``node`` and ``quorum``. With the option, it starts
no cluster and needs no ``node``.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import tidelog
from tidelog import Consumer, Producer
from tidelog_foundation.records import COMPILED

_DEADLINE_S = 60


def main(*, has_node: bool) -> None:
    """Check what is installed, never a checkout."""
    installed = Path(tidelog.__file__).parent
    assert installed.parent.name == "site-packages", f"tidelog was imported from {installed}"
    assert COMPILED, "the compiled modules are missing"
    said = subprocess.run(
        [Path(sys.executable).parent / "tidelog", "--version"], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["tidelog", version("tidelog")], said.stdout
    assert tidelog.__version__ == version("tidelog")
    if has_node:
        _produce_and_consume()
    print(f"tidelog {tidelog.__version__} works with Python {sys.version.split()[0]}")


def _produce_and_consume() -> None:
    from tidelog.testing import LocalCluster

    with LocalCluster(controllers=1, nodes=1) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        with Producer(servers) as producer:
            producer.produce("smoke", key=b"key", value=b"value")
        with Consumer({**servers, "group.id": "smoke", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["smoke"])
            message = consumer.poll(_DEADLINE_S)
            assert message is not None, f"no record within {_DEADLINE_S} s"
            assert message.error() is None, message.error()
            assert (message.key(), message.value()) == (b"key", b"value")


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--without-node"]):
        sys.exit("usage: smoke_test.py [--without-node]")
    main(has_node=not sys.argv[1:])
