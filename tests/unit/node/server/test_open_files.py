import logging
import resource

import pytest

from tidelog_node.server import process_resources


@pytest.fixture
def limits():
    """Return the process's limits and put them back after the test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_soft_limit_is_raised_to_the_hard_one(limits, caplog):
    soft, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
    with caplog.at_level(logging.WARNING):
        process_resources.raise_open_files_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    assert len(caplog.records) == (hard < process_resources._MIN_FILES and hard != resource.RLIM_INFINITY)


def test_low_hard_limit_is_told(limits, caplog, monkeypatch):
    monkeypatch.setattr(process_resources, "_MIN_FILES", limits[1] + 1)
    with caplog.at_level(logging.WARNING):
        process_resources.raise_open_files_limit()
    [record] = caplog.records
    assert f"No more than {limits[1]} files can be open" in record.getMessage()
