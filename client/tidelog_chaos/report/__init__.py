"""The report of a run: the findings of the check and the availability of the cluster, as text and as one HTML page."""

from tidelog_chaos.report.page import write_page
from tidelog_chaos.report.run import Run, read_replicas, read_run
from tidelog_chaos.report.summary import summary_lines, verdict_lines

__all__ = ["Run", "read_replicas", "read_run", "summary_lines", "verdict_lines", "write_page"]
