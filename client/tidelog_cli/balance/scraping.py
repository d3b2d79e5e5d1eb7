"""Reads the bytes that nodes have sent of each topic from their metrics ports."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from tidelog_foundation.errors import ErrorCode, error_for

TopicBytes: TypeAlias = float
"""Bytes of one topic, over all nodes that were asked."""

_SENT = "tidelog_topic_sent_bytes_total"


def scrape(urls: Iterable[str], timeout_s: float) -> dict[str, TopicBytes]:
    """Return the bytes that the nodes behind ``urls``, such as http://node1:9404/metrics, have sent by topic.

    Raises:
        TidelogError: _TRANSPORT, a node does not answer; _INVALID_ARG, an address is not one of HTTP.
    """
    totals: Counter[str] = Counter()
    for url in urls:
        totals.update(sent_bytes(_read(url, timeout_s)))
    return dict(totals)


def sent_bytes(text: str) -> Counter[str]:
    """Return the bytes sent by topic in a page of metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    totals: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _SENT:
                totals[sample.labels["topic"]] += int(sample.value)
    return totals


def _read(url: str, timeout_s: float) -> str:
    if not url.startswith(("http://", "https://")):
        raise error_for(ErrorCode._INVALID_ARG, f"{url!r} is not an address such as http://node1:9404/metrics")
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return str(answer.read().decode("utf-8"))
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        raise error_for(ErrorCode._TRANSPORT, f"Cannot read the metrics at {url}: {error}") from None
