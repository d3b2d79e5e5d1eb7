"""Log compaction: keeps the last record of each key in sealed segments, while the log serves appends and reads."""

from tidelog_node.log.cleaner.job import (
    CleanerMemory,
    Cleaning,
    CleaningStatistics,
    LogToClean,
    SourceSegment,
    Throttle,
)
from tidelog_node.log.cleaner.log_cleaner import LogCleaner
from tidelog_node.log.cleaner.policy import Cleanable, LogState, SealedSegment, cleanable_range, filthiest
from tidelog_node.log.cleaner.source import CleaningAborted
