"""What kafka-python's fixtures take from their ``test/service.py``, which its sdist does not have."""

from __future__ import annotations


class ExternalService:
    """A broker that runs already, at an address."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """Do nothing: it is not ours to start."""

    def stop(self) -> None:
        """Do nothing: it is not ours to stop."""


class SpawnedService:
    """A broker that the suite would start itself, which is not what we run it for."""

    def __init__(self, *arguments: object) -> None:
        raise NotImplementedError("the suite runs against KAFKA_URI only")
