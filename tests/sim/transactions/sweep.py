"""Many seeds of clusters with transactions, and the events that they must exercise."""

from __future__ import annotations

from sim.cluster.sweep import Seeds
from sim.transactions.runs import run
from sim.transactions.schedule import draw_transactional_schedule

SEEDS = Seeds("transactions", draw_transactional_schedule, run)
TRANSACTIONS = SEEDS.simulation(
    "all transactions are whole, once, and in order",
    (
        "aborted",
        "action bounce",
        "action kill",
        "action overtake",
        "action pause",
        "action power",
        "assigned",
        "committed",
        "fault: ambushed commit",
        "fault: killed client",
        "fault: paused client",
        "fault: replaced client",
        "late marker",
        "leaders",
        "member fenced",
        "read",
        "recovered",
        "shards of groups loaded",
        "shards of transactions loaded",
        "truncated",
        "unknown",
    ),
)
