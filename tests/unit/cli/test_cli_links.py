"""``tidelog link`` and ``tidelog mirror``: arguments that are refused, and clusters without links.

``tests/integration/test_secured_links.py`` and ``test_cluster_links.py`` run them on clusters with links.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result


def test_cluster_without_links_lists_none(run_json: Callable[..., Any]) -> None:
    assert run_json("link", "list") == {"links": []}
    assert run_json("mirror", "list") == {"mirrors": []}
    assert run_json("mirror", "describe") == {"partitions": []}


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        (("link", "create", "a"), 2, "Pass the addresses of the source with --source."),
        (("link", "alter", "a"), 2, "Nothing to change. Pass --source, --config KEY=VALUE or --delete-config KEY."),
        (("link", "alter", "a", "-c", "linger.ms=1"), 1, "no cluster link 'a'"),
        (("link", "describe", "a"), 1, "no cluster link 'a'"),
        (("link", "delete", "a", "--yes"), 1, "no cluster link 'a'"),
        (("link", "delete", "a"), 2, "Refusing to delete link a without confirmation"),
        (("mirror", "create", "a", "orders"), 1, "no cluster link 'a'"),
        (("mirror", "list", "--link", "a"), 1, "no cluster link 'a'"),
        (("mirror", "describe", "orders"), 1, "orders is no mirror topic"),
        (("mirror", "promote", "orders"), 1, "there is no topic 'orders'"),
        (("mirror", "pause", "orders"), 1, "there is no topic 'orders'"),
        (("mirror", "resume", "orders"), 1, "there is no topic 'orders'"),
        (("mirror", "failover", "orders", "--yes"), 1, "there is no topic 'orders'"),
        (("mirror", "failover", "orders"), 2, "are lost. Refusing to fail over topic orders without confirmation"),
    ],
)
def test_command_that_cannot_succeed_names_the_reason(
    run: Callable[..., Result], args: tuple[str, ...], status: int, text: str
) -> None:
    refused = run(*args)
    assert (refused.exit_code, text in refused.output) == (status, True), refused.output
