"""The settings that hold on a node now: its own over all nodes' over the file's, and what becomes of a change."""

import asyncio
import contextlib
import logging

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_node.partitions.housekeeping import _pause
from tidelog_node.server.cleaner_job import CleanerJob, cleaner_settings
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import ConfigRecord

FILE = {
    "broker.id": "7",
    "cluster.id": "c",
    "listeners": "GRPC://127.0.0.1:9092",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/a",
}


def image(settings=None, own=None):
    records = [ConfigRecord(ConfigResourceType.BROKER, "", k, v) for k, v in (settings or {}).items()]
    records += [ConfigRecord(ConfigResourceType.BROKER, "7", k, v) for k, v in (own or {}).items()]
    records.append(ConfigRecord(ConfigResourceType.BROKER, "8", "log.retention.ms", "1"))
    return MetadataImage().apply(1, 1, records)


def test_file_is_kept_by_the_settings_own_names():
    assert DynamicNodeConfig(FILE).file["node.id"] == "7"


def test_a_wrong_file_is_refused():
    with pytest.raises(ConfigError, match=r"log\.retention\.ms"):
        DynamicNodeConfig(FILE | {"log.retention.ms": "x"})


def test_cordon_is_refused_in_the_file_and_followed_at_run_time():
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs is set at run time"):
        DynamicNodeConfig(FILE | {"cordoned.log.dirs": "*"})
    config = DynamicNodeConfig(FILE)
    config.follow(image(own={"cordoned.log.dirs": "*"}))
    assert config.current.cordoned_log_dirs == ("*",)
    config.follow(image())
    assert config.current.cordoned_log_dirs == ()


def test_the_nodes_own_setting_counts_more_than_all_nodes_and_that_more_than_the_file():
    config = DynamicNodeConfig(FILE | {"log.retention.ms": "1000", "message.max.bytes": "1"})
    config.follow(image({"log.retention.ms": "2000", "message.max.bytes": "2"}, {"log.retention.ms": "3000"}))
    assert (config.current.log_retention_ms, config.current.message_max_bytes) == (3_000, 2)
    config.follow(image({"log.retention.ms": "2000"}))
    assert (config.current.log_retention_ms, config.current.message_max_bytes) == (2_000, 1)
    config.follow(image())
    assert config.current.log_retention_ms == 1_000


def test_a_setting_at_run_time_outdoes_the_file_in_another_unit():
    config = DynamicNodeConfig(FILE | {"log.retention.hours": "1", "log.roll.ms": "5"})
    config.follow(image({"log.retention.ms": "2000"}))
    assert config.current.topic_defaults().retention_ms == 2_000
    assert config.current.topic_defaults().segment_ms == 5
    config.follow(image())
    assert config.current.topic_defaults().retention_ms == 3_600_000


def test_what_a_newer_version_has_set_is_left_out():
    config = DynamicNodeConfig(FILE)
    config.follow(image({"not.known.yet": "1", "message.max.bytes": "5"}))
    assert config.current.message_max_bytes == 5


def test_a_setting_that_nodes_do_not_have_is_named_in_the_log_once_and_its_value_is_not(caplog):
    config = DynamicNodeConfig(FILE)
    with caplog.at_level(logging.WARNING):
        config.follow(image({"log.retention.mss": "secret"}))
        config.follow(image({"log.retention.mss": "secret"}, {"my\nkey": "secret"}))
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert 'unknown configuration "log.retention.mss"; did you mean "log.retention.ms"?' in caplog.text
    assert "my\\nkey" in caplog.messages[1]
    assert "secret" not in caplog.text


def test_users_are_told_of_changes_alone():
    told = []
    config = DynamicNodeConfig(FILE)
    config.subscribe(told.append)
    config.follow(image())
    config.follow(image({"log.cleaner.threads": "1"}))
    assert told == [], "it is what it was"
    config.follow(image({"log.cleaner.threads": "2"}))
    config.follow(image({"log.cleaner.threads": "2"}))
    assert [c.log_cleaner_threads for c in told] == [2]


def test_what_cannot_hold_with_the_file_is_left_out_and_logged(caplog):
    config = DynamicNodeConfig(FILE | {"log.cleaner.dedupe.buffer.size": str(2 << 20)})
    with caplog.at_level(logging.ERROR):
        config.follow(image({"log.cleaner.threads": "3", "message.max.bytes": "5"}))
    assert config.current.log_cleaner_threads == 1
    assert "below 1 MiB for each of 3 cleaner threads" in caplog.text
    config.follow(image({"log.cleaner.threads": "2", "message.max.bytes": "5"}))
    assert (config.current.log_cleaner_threads, config.current.message_max_bytes) == (2, 5)


def test_min_insync_replicas_holds_also_beside_what_cannot():
    """The controller goes by it (KIP-966): a leader that counted fewer would commit what eligible replicas lack."""
    config = DynamicNodeConfig(FILE | {"log.cleaner.dedupe.buffer.size": str(2 << 20)})
    told = []
    config.subscribe(lambda changed: told.append(changed.topic_defaults().min_insync_replicas))
    config.follow(image({"log.cleaner.threads": "3", "min.insync.replicas": "2"}))
    assert (config.current.min_insync_replicas, config.current.log_cleaner_threads, told) == (2, 1, [2])
    config.follow(image({"log.cleaner.threads": "3"}))
    assert (config.current.min_insync_replicas, told) == (1, [2, 1])


def test_the_cleaner_goes_on_with_other_settings_and_ends_in_order():
    began, ended = [], []

    async def clean(settings):
        began.append(settings)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(settings)

    async def run():
        config = DynamicNodeConfig(FILE)
        job = CleanerJob(config.current, clean)
        config.subscribe(job.change)
        task = asyncio.create_task(job.run(), name="cleaner-job")
        await asyncio.sleep(0.01)
        config.follow(image({"message.max.bytes": "5"}))
        await asyncio.sleep(0.01)
        assert len(began) == 1, "no other settings of its own"
        config.follow(image({"log.cleaner.backoff.ms": "7"}))
        await asyncio.sleep(0.01)
        assert ([s.backoff_ms for s in began], len(ended)) == ([15_000, 7], 1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert len(ended) == 2
        assert began[1] == cleaner_settings(config.current)

    asyncio.run(run())


def test_the_cleaners_failure_is_the_jobs():
    async def clean(settings):
        raise RuntimeError("for the test")

    async def run():
        with pytest.raises(RuntimeError, match="for the test"):
            await CleanerJob(DynamicNodeConfig(FILE).current, clean).run()

    asyncio.run(run())


def test_a_long_pause_takes_a_shorter_one_over(monkeypatch):
    monkeypatch.setattr("tidelog_node.partitions.housekeeping._CHECK_S", 0.01)
    interval_ms = 3_600_000

    async def run():
        nonlocal interval_ms
        pause = asyncio.create_task(_pause(lambda: interval_ms), name="pause")
        await asyncio.sleep(0.03)
        assert not pause.done()
        interval_ms = 1
        async with asyncio.timeout(5):
            await pause

    asyncio.run(run())
