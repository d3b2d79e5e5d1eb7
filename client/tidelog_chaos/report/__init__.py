"""The report of a run: what the check found and how available the cluster was, as text and as one page of HTML."""

from tidelog_chaos.report.page import write_page
from tidelog_chaos.report.run import Run, read_replicas, read_run
from tidelog_chaos.report.summary import summary_lines, verdict_lines

__all__ = ["Run", "read_replicas", "read_run", "summary_lines", "verdict_lines", "write_page"]
