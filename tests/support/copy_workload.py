"""The workload ``spark`` on a node in memory, with a query of the SDK in place of Spark's."""

from __future__ import annotations

from pathlib import Path

from acknowledged import wait_for

from tidelog.admin import AdminClient
from tidelog.testing import FakeCluster
from tidelog_chaos.checker import check
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import HistoryWriter, read_history
from tidelog_chaos.metrics import Meter
from tidelog_chaos.verdict import Verdict
from tidelog_chaos.workload import SparkWorkload, WorkloadSettings, load_library

SDK_COPY = Path(__file__).with_name("sdk_copy.py")
"""The program for `CopyQuery`."""


def run_workload(folder: Path, starts: int) -> Verdict:
    """Run until the query was started so many times, and is through with everything."""
    settings = WorkloadSettings(rate_per_s=100, partitions=2, replication_factor=1, crash_interval_s=0.5)
    path = folder / "history.jsonl"
    with FakeCluster() as fake, HistoryWriter(path) as history, AdminClient(fake.client_settings()) as admin:
        servers = fake.client_settings()
        library = load_library("tidelog")
        workload = SparkWorkload(settings, library, servers, servers, admin, "chaos", history, Meter(), 1, folder)
        workload.start()
        started = f'"f":"started","value":{{"start":{starts}'
        wait_for(lambda: started in path.read_text() or workload.failed is not None, f"{starts} starts")
        assert workload.stop_writing(Deadline(90)) == []
        assert workload.finish()[1] == []
    return check(read_history(path.read_text().splitlines()))
