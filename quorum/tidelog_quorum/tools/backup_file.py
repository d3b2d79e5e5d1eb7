"""Backups of a metadata log: files with a snapshot and the entries after it.

A file is the magic ``TIDELOGMETADATA``, the version of the format in a byte, and blocks: the length of a block in four
bytes, big-endian, its kind in one byte, and its body. The first block is a header, the last one a trailer with the
CRC-32C of all bytes before it; both are JSON documents. Between them are batches of metadata records, each after the
offset, the epoch and a flag that tells whether the entry continues in the next block. Writing and reading take no more
memory than one block, and the image that is read.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

import crc32c

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.metadata.codec import decode_batch
from tidelog_quorum.metadata.image import MetadataImage, MetadataImageBuilder
from tidelog_quorum.metadata.records import MetadataRecord
from tidelog_quorum.raft.storage.private_folder import FILE_MODE

_MAGIC = b"TIDELOGMETADATA"
_FORMAT = 1
_BLOCK = struct.Struct(">IB")
_ENTRY = struct.Struct(">qi?")
_HEADER_KIND, _SNAPSHOT_KIND, _ENTRY_KIND, _TRAILER_KIND = range(4)
_MAX_BLOCK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Backup:
    """The description of a backup: the cluster, the last entry, the time in milliseconds since 1970, the version."""

    cluster_id: str
    offset: int
    epoch: int
    created_ms: int
    version: str


class BackupWriter:
    """Writes a backup beside its path, and puts it in place when it is complete.

    Use it as a context manager, which removes an incomplete file. Only the owner may read the file, which contains
    credentials.
    """

    def __init__(self, path: Path, cluster_id: str) -> None:
        """Create the file.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        self._path = path
        self._temporary = path.with_name(f"{path.name}.writing")
        self._checksum = 0
        self._described = Backup(cluster_id, -1, -1, int(time.time() * 1000), version("tidelog"))
        with _storage_errors("write", self._temporary):
            self._temporary.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._temporary, flags, FILE_MODE), "wb")
        self._put(_MAGIC + bytes([_FORMAT]))
        header = {"cluster_id": cluster_id, "created_ms": self._described.created_ms, "version": version("tidelog")}
        self._put_block(_HEADER_KIND, json.dumps(header).encode())
        self._start = self._file.tell(), self._checksum

    def __enter__(self) -> BackupWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def begin_snapshot(self) -> None:
        """Drop all batches so far: a snapshot follows.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        position, self._checksum = self._start
        with _storage_errors("write", self._temporary):
            self._file.seek(position)
            self._file.truncate()

    def add(self, offset: int, epoch: int, batch: bytes, *, is_continued: bool, is_snapshot: bool) -> None:
        """Add a batch of the snapshot, or an entry after it, or a part of one.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        kind = _SNAPSHOT_KIND if is_snapshot else _ENTRY_KIND
        self._put_block(kind, _ENTRY.pack(offset, epoch, is_continued) + batch)

    def finish(self, offset: int, epoch: int) -> Backup:
        """Complete the file durably, put it in place, and return its description.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        trailer = {"offset": offset, "epoch": epoch, "crc32c": self._checksum}
        self._put_block(_TRAILER_KIND, json.dumps(trailer).encode())
        with _storage_errors("write", self._temporary):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._temporary.replace(self._path)
        described = self._described
        return Backup(described.cluster_id, offset, epoch, described.created_ms, described.version)

    def _put_block(self, kind: int, body: bytes) -> None:
        self._put(_BLOCK.pack(len(body), kind))
        self._put(body)

    def _put(self, data: bytes) -> None:
        with _storage_errors("write", self._temporary):
            self._file.write(data)
        self._checksum = crc32c.crc32c(data, self._checksum)


def read_backup(path: Path) -> tuple[Backup, MetadataImage]:
    """Return a backup's description and the image at its end.

    Raises:
        TidelogError: CORRUPT_MESSAGE, the file is damaged or incomplete; UNSUPPORTED_VERSION, its format or one of its
            records is unknown; KAFKA_STORAGE_ERROR.
    """
    with _storage_errors("read", path), path.open("rb") as file:
        # The checksum first: nothing is built from damaged bytes.
        described = _describe(path, file)
        file.seek(0)
        image = _image(path, file)
    if (image.offset, image.epoch) != (described.offset, described.epoch):
        raise _corrupt(path, f"it ends at offset {image.offset}, not {described.offset}")
    return described, image


def _describe(path: Path, file: BinaryIO) -> Backup:
    header: dict[str, object] = {}
    for kind, body, checksum in _blocks(path, file):
        if kind not in (_HEADER_KIND, _TRAILER_KIND):
            continue
        try:
            header |= json.loads(body)
            if kind == _HEADER_KIND:
                continue
            if header["crc32c"] != checksum or file.read(1):
                raise _corrupt(path, f"its CRC-32C is {checksum:#010x}, not that in its trailer")
            offset, epoch, created_ms = (int(str(header[name])) for name in ("offset", "epoch", "created_ms"))
            return Backup(str(header["cluster_id"]), offset, epoch, created_ms, str(header["version"]))
        except (ValueError, KeyError, TypeError) as error:
            raise _corrupt(path, f"a document of it is damaged: {error}") from error
    raise _corrupt(path, "it is incomplete")


def _image(path: Path, file: BinaryIO) -> MetadataImage:
    builder, end = MetadataImageBuilder(MetadataImage()), (-1, -1)
    image: MetadataImage | None = None
    records: list[MetadataRecord] = []
    for kind, body, _ in _blocks(path, file):
        if kind not in (_SNAPSHOT_KIND, _ENTRY_KIND):
            continue
        offset, epoch, is_continued = _ENTRY.unpack_from(body)
        records += decode_batch(body[_ENTRY.size :])
        if kind == _SNAPSHOT_KIND:
            builder.add(records)
            end = offset, epoch
        elif not is_continued:
            image = (image or builder.finish(*end)).apply(offset, epoch, records)
        if not is_continued:
            records = []
    return image or builder.finish(*end)


def _blocks(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes, int]]:
    """Yield the kind and the body of each block, with the checksum of all bytes before it."""
    beginning = file.read(len(_MAGIC) + 1)
    if beginning[:-1] != _MAGIC:
        raise _corrupt(path, "it is not a backup of a metadata log")
    if beginning[-1] != _FORMAT:
        text = f"{path} has format {beginning[-1]} of backups, this version reads {_FORMAT}"
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
    checksum = crc32c.crc32c(beginning)
    while len(head := file.read(_BLOCK.size)) == _BLOCK.size:
        size, kind = _BLOCK.unpack(head)
        if size > _MAX_BLOCK_BYTES:
            raise _corrupt(path, f"a block has {size} bytes, more than {_MAX_BLOCK_BYTES}")
        body = file.read(size)
        if len(body) < size:
            break
        yield kind, body, checksum
        if kind == _TRAILER_KIND:
            return
        checksum = crc32c.crc32c(body, crc32c.crc32c(head, checksum))
    raise _corrupt(path, "it is incomplete")


def _corrupt(path: Path, problem: str) -> TidelogError:
    return error_for(ErrorCode.CORRUPT_MESSAGE, f"the backup {path} is damaged: {problem}")


@contextlib.contextmanager
def _storage_errors(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {what} {path}: {error.strerror}") from error
