"""The part of kafka-python's ``test/service.py`` that its fixtures need and that its sdist lacks."""

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
