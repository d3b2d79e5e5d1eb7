"""Blocks of producer ids: each once, for brokers with their present epoch alone."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.brokers import AllocateProducerIdsRequest
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import ProducerIdsRecord


@pytest.fixture
def two(driver: Any) -> Any:
    driver.up(1, 2)
    return driver


def allocate(driver: Any, broker_id: int, epoch: int | None = None) -> tuple[int, int]:
    epoch = driver.image.brokers[broker_id].broker_epoch if epoch is None else epoch
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
    response = driver.do(driver.controller.handle, request)
    return response.producer_id_start, response.producer_id_len


def test_blocks_follow_each_other_whoever_asks(two: Any) -> None:
    assert [allocate(two, b) for b in (1, 2, 1)] == [(0, 1_000), (1_000, 1_000), (2_000, 1_000)]


def test_blocks_are_not_given_again_by_a_new_leader_or_from_a_snapshot(two: Any) -> None:
    allocate(two, 1)
    two.lead()
    assert allocate(two, 2) == (1_000, 1_000)
    image = two.image
    restored = MetadataImage().apply(image.offset, image.epoch, image.to_records())
    assert restored.next_producer_id == 2_000


def test_a_block_that_was_not_committed_is_given_again(two: Any) -> None:
    epoch = two.image.brokers[1].broker_epoch
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    assert two.write(two.controller.handle, request).producer_id_start == 0
    two.lead()
    assert allocate(two, 1) == (0, 1_000), "nobody was answered with the first one"


@pytest.mark.parametrize(("broker_id", "epoch"), [(9, 1), (1, 0)])
def test_a_broker_of_another_epoch_gets_nothing(two: Any, broker_id: int, epoch: int) -> None:
    with pytest.raises(TidelogError) as caught:
        allocate(two, broker_id, epoch)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_the_ids_end(two: Any) -> None:
    two.append(Result([ProducerIdsRecord(1, 1, 2**63 - 1_000)], None))  # type: ignore[arg-type]
    two.commit()
    with pytest.raises(TidelogError, match="are used up"):
        allocate(two, 1)
