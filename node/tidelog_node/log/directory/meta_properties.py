"""``meta.properties`` and the clean-shutdown marker: a log directory's owner and the state of its last shutdown."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import uuid
from pathlib import Path

import javaproperties

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId
from tidelog_node.log.disk.files import Files, read_file, replace_file, storage_errors

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = BrokerEpoch(-1)
_VERSION = "1"
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Version 1 of Kafka's ``meta.properties`` (KIP-631, KIP-858).

    ``directory_id`` is unpadded URL-safe base64 of 16 bytes; :attr:`directory` has the bytes.
    """

    cluster_id: str
    node_id: BrokerId
    directory_id: str

    @property
    def directory(self) -> DirectoryId:
        """The id of the directory for the controller."""
        return DirectoryId(base64.urlsafe_b64decode(self.directory_id + "=="))


def claim_directory(files: Files, path: Path, cluster_id: str, node_id: BrokerId) -> MetaProperties:
    """Return a directory's properties after checking that this node owns it; a new directory becomes this node's.

    A directory of an older version, which has no id, gets one.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID; KAFKA_STORAGE_ERROR.
        ConfigError: it belongs to another node, or the file is not a valid meta.properties of version 1.
    """
    file = path / META_PROPERTIES
    with storage_errors("Reading", file):
        data = read_file(files, file)
    if data is None:
        return _create(files, file, MetaProperties(cluster_id, node_id, _random_id()))
    found = _parse(file, data)
    if found.cluster_id != cluster_id:
        raise error_for(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the log directory {path} belongs to the cluster {found.cluster_id}, this node to {cluster_id}",
        )
    if found.node_id != node_id:
        raise ConfigError(f"the log directory {path} belongs to node.id={found.node_id}, this node has {node_id}")
    if not _is_id(found.directory_id):
        return _create(files, file, dataclasses.replace(found, directory_id=_random_id()))
    return found


def take_clean_shutdown(files: Files, path: Path) -> BrokerEpoch | None:
    """Remove the marker, durably, and return the broker epoch in it (-1 if none); None after an unclean shutdown.

    It is removed before any log is opened, so that a crash while logs load does not look like a clean shutdown.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    marker = path / CLEAN_SHUTDOWN
    with storage_errors("Removing the clean-shutdown marker", marker):
        data = read_file(files, marker)
        if data is None:
            return None
        files.remove(marker)
        files.fsync_directory(path)
    try:
        return BrokerEpoch(int(json.loads(data)["brokerEpoch"]))
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH


def write_clean_shutdown(files: Files, path: Path, broker_epoch: BrokerEpoch) -> None:
    """Write the marker atomically and durably, after all logs are closed.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    marker = path / CLEAN_SHUTDOWN
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    with storage_errors("Writing", marker):
        replace_file(files, marker, content.encode())


def _create(files: Files, file: Path, properties: MetaProperties) -> MetaProperties:
    fields = {
        "cluster.id": properties.cluster_id,
        "directory.id": properties.directory_id,
        "node.id": str(properties.node_id),
        "version": _VERSION,
    }
    with storage_errors("Writing", file):
        replace_file(files, file, str(javaproperties.dumps(fields, timestamp=False)).encode())
    return properties


def _parse(file: Path, data: bytes) -> MetaProperties:
    try:
        fields: dict[str, str] = javaproperties.loads(data.decode("latin-1"))
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']}")
        return MetaProperties(fields["cluster.id"], BrokerId(int(fields["node.id"])), fields.get("directory.id", ""))
    except (ValueError, KeyError) as cause:
        raise ConfigError(f"{file} is not a meta.properties of version {_VERSION}: {cause!r}") from cause


def _is_id(text: str) -> bool:
    try:
        return len(base64.b64decode(text + "==", altchars=b"-_", validate=True)) == _ID_BYTES
    except binascii.Error:
        return False


def _random_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
