"""Writes the reference of all metrics, docs/metrics.md, from their declarations.

``python docs/generate_metrics.py`` exits with 1 when the committed page is stale; ``--write`` replaces it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog_connect import metrics as connect
from tidelog_foundation.metrics import Metric
from tidelog_mirror import metrics as mirror
from tidelog_node.server import metrics as node
from tidelog_operator import metrics as operator
from tidelog_quorum.server import metrics as controller

PAGE = Path(__file__).resolve().parent / "metrics.md"

_HEAD = """# Metrics

Every node and every controller serves its metrics to Prometheus, its health to supervisors, and, if enabled,
diagnostics over HTTP:

```properties
metrics.listeners=HTTP://127.0.0.1:9404
```

| path | answer |
|---|---|
| `/metrics` | the metrics of this page, in Prometheus' text format or OpenMetrics, as the `Accept` header asks |
| `/livez` | 200 if the event loop answers within five seconds, else 503: restart the process |
| `/readyz` | 200 if the process is [ready](health.md), else 503 with the reasons |
| `/healthz` | as `/readyz`, with all checks as JSON |
| `/safe-to-stop` | 200 if the process can [stop safely](health.md#safe-to-stop), else 503 with the reasons |
| `/debug/tasks` | the tasks of the event loop and the lines that they wait in (`metrics.debug.enable=true`) |
| `/debug/profile?seconds=10` | samples of the event loop's thread, as collapsed stacks for flame graphs (as above) |

**Access.** Everybody who reaches an `HTTP` port may read it, and metrics have names of topics, groups and listeners.
Bind the port to loopback or to a network of your own, or use TLS with client certificates:

```properties
metrics.listeners=HTTPS://0.0.0.0:9404
listener.name.https.ssl.keystore.type=PEM
listener.name.https.ssl.keystore.location=/etc/tidelog/node.pem
listener.name.https.ssl.truststore.type=PEM
listener.name.https.ssl.truststore.location=/etc/tidelog/ca.pem
listener.name.https.ssl.client.auth=required
```

The port has four threads and a queue of sixteen connections, and shares one collection among scrapes of the same
second, so that readers cannot exhaust a process. `metrics.listeners` is not set by default: nothing is served.

`tidelog dev --metrics` and `LocalCluster(metrics=True)` open such a port on loopback for every process, and the
[Kubernetes manifests](../deploy/README.md) one in every pod. The [operator](operator.md) serves metrics alone, at the
address of its option `--metrics`. A [mirror](mirroring.md#metrics) and a
[Connect worker](connect.md#metrics) have the setting too.

**Limits.** The number of series does not grow without bound. `metrics.topics.max` topics have series of their own, all
others share the topic `(other)`; `metrics.group.offsets.max` committed offsets have series, the rest have none.
`tidelog_topics_without_own_metrics` and `tidelog_group_offsets_without_metrics` tell how many that are. All other
labels have few values: APIs, phases, listeners, nodes, directories.

**Names.** They follow Prometheus' conventions: base units, `_total` for counters. The rates, percentiles and means of
Kafka's MBeans are queries here: `rate(tidelog_..._total[5m])`, `histogram_quantile(0.99, ...)`. In Kafka's names below,
`*` stands for any value. The metrics of the process itself are those of prometheus-client: `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_open_fds`, `process_max_fds`, `process_start_time_seconds`,
`python_gc_collections_total` and others.

This page is generated: change the declaration of a metric, then run `make docs`.
"""


def main() -> int:
    """Compare the page with the declarations, or write it."""
    fresh = render()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(fresh, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != fresh:
        print(f"stale: docs/{PAGE.name}; run `make docs`", file=sys.stderr)
        return 1
    return 0


def render() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for title, subjects in (
        ("Nodes", node.DECLARED),
        ("Controllers", controller.DECLARED),
        ("Operator", operator.DECLARED),
        ("Mirror", mirror.DECLARED),
        ("Connect workers", connect.DECLARED),
    ):
        parts.append(f"\n## {title}\n")
        parts += [
            f"\n### {title}: {subject[0].lower()}{subject[1:]}\n\n{_table(metrics)}" for subject, metrics in subjects
        ]
    parts.append(f"\n## By Kafka's names\n\n{_names()}")
    return "".join(parts)


def _table(metrics: Iterable[Metric]) -> str:
    rows = ["| metric | labels | meaning |", "|---|---|---|", *map(_row, metrics)]
    return "\n".join(rows) + "\n"


def _row(metric: Metric) -> str:
    kind = "" if metric.kind.value == "counter" else f" ({metric.kind.value})"
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}`{kind} | {labels} | {_cell(metric.help)} |"


def _names() -> str:
    found: dict[str, list[str]] = {}
    for _, metrics in (*node.DECLARED, *controller.DECLARED, *mirror.DECLARED, *connect.DECLARED):
        for metric in metrics:
            for name in metric.kafka:
                names = found.setdefault(name, [])
                if metric.name not in names:
                    names.append(metric.name)
    rows = [f"| `{_cell(name)}` | {_listed(names)} |" for name, names in sorted(found.items())]
    return "\n".join(["| Kafka's MBean | metric |", "|---|---|", *rows]) + "\n"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
