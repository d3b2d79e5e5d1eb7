"""What handling a request gives: records to write, and the answer to send once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.v1 import common_pb2
from tidelog_foundation.errors import TidelogError
from tidelog_quorum.metadata.records import MetadataRecord

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """``records`` form one atomic entry; without any, ``response`` still depends on all entries written before.

    Records that are not ``atomic`` may be written as several entries, in order: each is right without the later ones.
    ``preparations`` are such, too, whatever ``records`` are, and are written before them.
    """

    records: Sequence[MetadataRecord]
    response: R
    atomic: bool = True
    preparations: Sequence[MetadataRecord] = ()


def error_message(error: TidelogError) -> common_pb2.Error:
    """Return an error of one item as the message inside a response."""
    return common_pb2.Error(code=error.code.code, message=error.message)
