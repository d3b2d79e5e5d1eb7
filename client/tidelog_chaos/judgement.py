"""The end of a run: check its history, write the verdict and the report, print the summary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from tidelog_chaos.checker import check
from tidelog_chaos.history import read_history
from tidelog_chaos.report import read_run, summary_lines, write_page
from tidelog_chaos.runner import HISTORY, RunOutcome, drop_data

if TYPE_CHECKING:
    from tidelog_chaos.settings import RunSettings

VERDICT, REPORT = "verdict.json", "report.html"
"""The files of a run's directory with the findings of the check, and with the report page."""


def judge(settings: RunSettings, outcome: RunOutcome, console: Console) -> bool:
    """Check a run, write and print the outcome, and return whether nothing is wrong.

    Then remove the cluster's data, unless it is to be kept.
    """
    with (settings.output / HISTORY).open(encoding="utf-8") as lines:
        verdict = check(read_history(lines), replica_logs=outcome.replicas)
    (settings.output / VERDICT).write_text(json.dumps(verdict.as_json()) + "\n")
    is_good = verdict.valid and not outcome.problems
    if is_good and not settings.keep_data:
        drop_data(settings)
    found = read_run(settings.output)
    write_page(found, settings.output / REPORT)
    for line in [*summary_lines(found), "", *_rest(outcome), "", f"{settings.output / REPORT}"]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return is_good


def _rest(outcome: RunOutcome) -> Iterator[str]:
    """Yield the results that are not in the history."""
    if outcome.recovery_s is not None:
        yield f"every replica was in sync {outcome.recovery_s:.1f} s after the last healing began"
    if outcome.replicas is None:
        yield "the replicas' files were not compared"
    else:
        yield f"the replicas of {len(outcome.replicas):,} partitions were compared below the high watermark"
    if outcome.errors:
        yield f"clients were told {', '.join(f'{name} {count:,}' for name, count in outcome.errors.items())}"
