"""The consumer's decisions, without I/O, clock or randomness."""

from tidelog.consumer.core.events import (
    AskMetadata,
    Command,
    Deliver,
    Event,
    Fetch,
    Fetched,
    FetchedPartition,
    FetchFailed,
    FetchSpec,
    Interrupt,
    LookedUp,
    LookUp,
    LookUpFailed,
    LookUpSpec,
    Refused,
    Report,
    Validate,
    Validated,
    ValidationFailed,
    ValidationSpec,
)
from tidelog.consumer.core.partition import PartitionState
from tidelog.consumer.core.positions import Positions
from tidelog.consumer.core.settings import PositionSettings

__all__ = [
    "AskMetadata",
    "Command",
    "Deliver",
    "Event",
    "Fetch",
    "FetchFailed",
    "FetchSpec",
    "Fetched",
    "FetchedPartition",
    "Interrupt",
    "LookUp",
    "LookUpFailed",
    "LookUpSpec",
    "LookedUp",
    "PartitionState",
    "PositionSettings",
    "Positions",
    "Refused",
    "Report",
    "Validate",
    "Validated",
    "ValidationFailed",
    "ValidationSpec",
]
