"""Kafka's RecordBatch v2, byte for byte: build, validate, read, assign offsets, decode to Arrow."""

from tidelog_foundation.records._engine import COMPILED, Record
from tidelog_foundation.records.arrow import MAX_DECODED_BYTES, to_arrow
from tidelog_foundation.records.builder import RecordBatchBuilder, record_size_upper_bound
from tidelog_foundation.records.compression import CODECS, MAX_EXPANSION, OversizedRecordsError
from tidelog_foundation.records.control import ControlRecord, ControlType, control_batch, read_control
from tidelog_foundation.records.header import (
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchesSummary,
    BatchScan,
    RecordBatchHeader,
    assign_offsets,
    encode_batch,
    is_transactional,
)
from tidelog_foundation.records.reader import (
    FoundRecord,
    find_greatest,
    find_timestamp,
    iter_records,
    read_parts,
    read_records,
)
from tidelog_foundation.records.recompression import compress_records
from tidelog_foundation.records.scan import iter_headers, parse_header, scan_batches, summarize_batches
from tidelog_foundation.records.transactions import data_batches, without_aborted
from tidelog_foundation.records.validation import (
    ProducedBatch,
    RecordsSummary,
    check_records,
    check_timestamps,
    inspect_produced,
    keyless_records,
    records_outside,
    summarize_records,
    validate_batch,
)
