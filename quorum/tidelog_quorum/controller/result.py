"""The result of a request: records to write, and the answer to send once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.metadata.records import MetadataRecord

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """Records to write as one atomic entry, and a response. It depends on all earlier entries even without records.

    Records that are not ``atomic`` may be written as several entries, in order: each is valid without the later ones.
    ``preparations`` are never atomic, and are written before ``records``.
    """

    records: Sequence[MetadataRecord]
    response: R
    atomic: bool = True
    preparations: Sequence[MetadataRecord] = ()
