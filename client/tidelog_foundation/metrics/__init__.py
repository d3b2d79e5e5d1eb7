"""Declarations of metrics, and their values at a point in time. It exports nothing itself."""

from tidelog_foundation.metrics.declaration import Family, Kind, Labels, Metric, Source
from tidelog_foundation.metrics.histogram import Buckets, Histogram, Snapshot
