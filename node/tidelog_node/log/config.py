"""The settings of a partition's log, which are those of its topic."""

from tidelog_foundation.config.topic import CREATE_TIME, LOG_APPEND_TIME
from tidelog_foundation.config.topic import TopicConfig as LogConfig

__all__ = ["CREATE_TIME", "LOG_APPEND_TIME", "LogConfig"]
