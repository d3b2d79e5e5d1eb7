"""Kafka's RecordBatch v2, byte for byte: build, validate, read, assign offsets, decode to Arrow."""

from tidelog.records._engine import COMPILED, Record
from tidelog.records.arrow import to_arrow
from tidelog.records.builder import Headers, RecordBatchBuilder, record_size_upper_bound
from tidelog.records.compression import CODECS, MAX_DECOMPRESSED_SIZE
from tidelog.records.header import (
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RecordBatchHeader,
    assign_offsets,
    iter_headers,
    parse_header,
)
from tidelog.records.reader import read_records
from tidelog.records.validation import check_records, validate_batch, validate_produced

__all__ = [
    "CODECS",
    "COMPILED",
    "CREATE_TIME",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAX_DECOMPRESSED_SIZE",
    "NO_PARTITION_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "Headers",
    "Record",
    "RecordBatchBuilder",
    "RecordBatchHeader",
    "assign_offsets",
    "check_records",
    "iter_headers",
    "parse_header",
    "read_records",
    "record_size_upper_bound",
    "to_arrow",
    "validate_batch",
    "validate_produced",
]
