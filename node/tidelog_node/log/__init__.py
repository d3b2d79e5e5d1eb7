"""The log on the disk: one :class:`PartitionLog` per replica, in Kafka's file formats."""

from tidelog_node.log.append_rules import AppendInfo, CheckedBatch, ProduceRules, RecordError, RefusedRecordsError
from tidelog_node.log.config import LogConfig
from tidelog_node.log.directory.log_directory import LogDirectory
from tidelog_node.log.disk.files import OS_FILES, Files
from tidelog_node.log.log import PartitionLog
from tidelog_node.log.producers.verification import NO_GUARD
from tidelog_node.log.timestamps import TimestampAndOffset, TimestampSearch
