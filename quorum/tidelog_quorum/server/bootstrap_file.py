"""The file ``bootstrap.records`` in ``metadata.log.dir``: records that a new cluster begins with (KIP-900).

``tidelog quorum format`` writes it before the first start. The first leader of a cluster without any metadata writes
the records to the metadata log; afterwards the file has no effect. Only its owner can read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.replaced_files import replace_file
from tidelog_quorum.metadata.batches import encode_batches, frame_batches, read_frames
from tidelog_quorum.metadata.codec import decode_batch
from tidelog_quorum.metadata.records import MetadataRecord
from tidelog_quorum.raft.storage.private_folder import FILE_MODE, make_private_folder

_NAME = "bootstrap.records"
_LOGS = ("CURRENT", "pysyncobj")
"""The files that the metadata log of an engine has."""


def is_formatted(directory: Path) -> bool:
    """Return whether a folder has a metadata log, or the file already."""
    return any((directory / name).exists() for name in (_NAME, *_LOGS))


def write_bootstrap_records(directory: Path, records: Iterable[MetadataRecord]) -> Path:
    """Write the file, in a folder that is created if missing, and return its path.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    path = directory / _NAME
    try:
        make_private_folder(directory)
        replace_file(path, b"".join(frame_batches(encode_batches(records))), FILE_MODE)
    except OSError as error:
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write {path}: {error.strerror}") from error
    return path


def read_bootstrap_records(directory: Path) -> Sequence[MetadataRecord]:
    """Return the records of the file; none if there is no file.

    Raises:
        ConfigError: The file cannot be read or is damaged.
    """
    path = directory / _NAME
    try:
        return [record for batch in read_frames([path.read_bytes()]) for record in decode_batch(batch)]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except TidelogError as error:
        raise ConfigError(f"{path} is damaged, write it again with tidelog quorum format: {error.message}") from error
