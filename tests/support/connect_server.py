"""A worker of ``tidelog connect`` on a thread, over a cluster and a Spark session of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
from pyspark.sql import SparkSession

from tidelog.testing.ports import free_ports
from tidelog_connect.server.process import ConnectServer
from tidelog_connect.server.settings import worker_settings

DEADLINE_S = 180.0


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, "the condition is not met in time"
        time.sleep(0.1)


class Server:
    """A worker on a thread of this process."""

    def __init__(
        self,
        bootstrap_servers: str,
        folder: Path,
        spark: SparkSession | None,
        own: Mapping[str, str],
        client: Mapping[str, Any],
    ) -> None:
        scheme = "https" if any(key.startswith("listeners.https.") for key in own) else "http"
        self.url = f"{scheme}://127.0.0.1:{free_ports(1)[0]}"
        settings = worker_settings(
            {
                "bootstrap.servers": bootstrap_servers,
                "listeners": self.url,
                "session.timeout.ms": "3000",
                "checkpoint.location": str(folder / "checkpoints"),
                **own,
            }
        )

        def session() -> SparkSession:
            assert spark is not None
            return spark

        self.server = ConnectServer(settings, session)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        self.http = httpx2.Client(base_url=self.url, timeout=60, trust_env=False, **client)

    def stop(self) -> None:
        self.server.stop()
        self.thread.join()
        self.http.close()

    def is_ready(self) -> bool:
        return self.server.is_listening and self.http.get("/health").status_code == 200

    def status(self, name: str) -> list[str]:
        answer = self.http.get(f"/connectors/{name}/status")
        if answer.status_code != 200:
            return []
        found = answer.json()
        return [found["connector"]["state"], *(each["state"] for each in found["tasks"])]


@contextmanager
def running(
    bootstrap_servers: str,
    folder: Path,
    spark: SparkSession | None = None,
    own: Mapping[str, str] = MappingProxyType({}),
    client: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Server]:
    """Run a worker with further settings, and a client of it with further arguments."""
    server = Server(bootstrap_servers, folder, spark, own, client)
    try:
        wait_for(server.is_ready)
        yield server
    finally:
        server.stop()
