"""`ConnectProcess`: ``tidelog connect`` as a process of its own, which tests kill as a whole or in part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
from spark_process import SparkProcess

from tidelog.testing.ports import free_ports

_TIMEOUT_S = 30.0


class ConnectProcess(SparkProcess):
    """A worker that is started again wherever it has ended."""

    def __init__(self, settings: Mapping[str, str], log: Path) -> None:
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        given = {"listeners": self.url, **settings}
        overrides = [part for key, value in given.items() for part in ("--override", f"{key}={value}")]
        super().__init__(["connect", *overrides], log)
        self._http = httpx2.Client(base_url=self.url, timeout=_TIMEOUT_S, trust_env=False)

    def stop(self) -> None:
        """End the process in order, or at once if it takes too long."""
        self._http.close()
        super().stop()

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer of the REST API as JSON; None while it does not answer, or refuses the request."""
        try:
            answer = (
                self._http.request(method, path, json=body) if body is not None else self._http.request(method, path)
            )
        except httpx2.HTTPError:
            return None
        return (answer.json() if answer.content else {}) if answer.is_success else None

    def restart_failed(self, name: str) -> str | None:
        """Restart a connector that has failed; return its error, if it has one."""
        status = self.request("GET", f"/connectors/{name}/status")
        states = [] if status is None else [status["connector"], *status["tasks"]]
        failed = [each for each in states if each["state"] == "FAILED"]
        if not failed:
            return None
        self.request("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")
        return str(failed[0].get("trace"))
