"""The log on the disk: one :class:`PartitionLog` per replica, in Kafka's file formats."""

from tidelog_node.log.append_rules import (
    NO_APPEND_TIME,
    AppendInfo,
    CheckedBatch,
    ProduceRules,
    RecordError,
    RefusedRecordsError,
)
from tidelog_node.log.config import CREATE_TIME, LOG_APPEND_TIME, LogConfig
from tidelog_node.log.directory.log_directory import LogDirectory
from tidelog_node.log.disk.files import OS_FILES, Files
from tidelog_node.log.epochs import EpochEntry
from tidelog_node.log.log import PartitionLog
from tidelog_node.log.recovery import RecoveryReport
from tidelog_node.log.timestamps import TimestampAndOffset, TimestampSearch

__all__ = [
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "NO_APPEND_TIME",
    "OS_FILES",
    "AppendInfo",
    "CheckedBatch",
    "EpochEntry",
    "Files",
    "LogConfig",
    "LogDirectory",
    "PartitionLog",
    "ProduceRules",
    "RecordError",
    "RecoveryReport",
    "RefusedRecordsError",
    "TimestampAndOffset",
    "TimestampSearch",
]
