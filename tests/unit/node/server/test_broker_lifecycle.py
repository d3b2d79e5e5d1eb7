import asyncio
import contextlib
import logging
import time

import pytest
from disk_node import until

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.brokers import BrokerHeartbeatResponse, RegisterBrokerResponse
from tidelog_node.broker.lifecycle import LifecycleTimings
from tidelog_node.server.lifecycle import BrokerLifecycle
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES


class FakeController:
    """Registers under growing epochs and keeps the latest registration; ``errors`` are raised first, by call."""

    def __init__(self):
        self.registrations = []
        self.heartbeats = []
        self.attempts_s = []
        self.errors = {"register": [], "heartbeat": []}
        self.epoch = 10
        self.known_epoch = None
        self.leads_something = False
        self.session_timeout_ms = 2_000
        self.metadata_offset = 0

    async def register_broker(self, request, timeout_s):
        await asyncio.sleep(0)
        self.registrations.append(request)
        self._fail("register")
        self.epoch += 10
        self.known_epoch = self.epoch
        return RegisterBrokerResponse(broker_epoch=self.epoch)

    async def broker_heartbeat(self, request, timeout_s, attempt_timeout_s):
        await asyncio.sleep(0)
        self.heartbeats.append(request)
        self.attempts_s.append(attempt_timeout_s)
        self._fail("heartbeat")
        if request.broker_epoch != self.known_epoch:
            raise error_for(ErrorCode.STALE_BROKER_EPOCH, "there is no such registration")
        is_caught_up = request.current_metadata_offset >= request.broker_epoch
        should_shut_down = request.want_shut_down and not self.leads_something
        return BrokerHeartbeatResponse(
            is_fenced=not is_caught_up,
            should_shut_down=should_shut_down,
            session_timeout_ms=self.session_timeout_ms,
            metadata_offset=self.metadata_offset,
        )

    def _fail(self, call):
        if self.errors[call]:
            code = self.errors[call][0]
            if code is not None:
                # None ends the errors; a single one stays for good.
                if len(self.errors[call]) > 1:
                    self.errors[call].pop(0)
                raise error_for(code, f"{code.name} for the test")


class Running:
    def __init__(self, controller, tasks, heartbeat_ms):
        self.passed_ms = 0
        self.epochs_told = []
        self.offline = []
        self.heard = []
        self.lifecycle = BrokerLifecycle(
            1,
            "c",
            [NamedListener("GRPC", "127.0.0.1", 1, "GRPC"), NamedListener("PLAINTEXT", "h", 2)],
            "",
            [b"d" * 16],
            -1,
            LifecycleTimings(heartbeat_ms, registration_retry_ms=10),
            controller,
            lambda: self.offline,
            self,
            self.heard.append,
        )
        self.lifecycle.note_serving()
        self.task = tasks.create_task(self.lifecycle.run(self.on_registered), name="lifecycle")

    def monotonic_ms(self):
        """The time of the loop, and what the test lets pass at once."""
        return self.passed_ms + time.monotonic_ns() // 1_000_000

    def wall_ms(self):
        return self.monotonic_ms()

    def on_registered(self, broker_epoch):
        assert broker_epoch == self.lifecycle.broker_epoch
        self.epochs_told.append(broker_epoch)


@contextlib.asynccontextmanager
async def running(controller, heartbeat_ms=20):
    async with asyncio.TaskGroup() as tasks:
        node = Running(controller, tasks, heartbeat_ms)
        try:
            yield node
        finally:
            node.task.cancel()


def test_node_registers_then_is_unfenced_when_it_has_caught_up(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as node:
            await wait_for(lambda: len(controller.heartbeats) > 2)
            assert node.lifecycle.is_fenced
            node.lifecycle.note_applied(20)
            await wait_for(lambda: not node.lifecycle.is_fenced)
            assert node.epochs_told == [20]
            assert controller.registrations[0].incarnation_id == node.lifecycle.incarnation_id

    asyncio.run(run())


def test_node_registers_with_the_features_that_it_knows(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller):
            await wait_for(lambda: controller.registrations)
            named = {f.name: (f.min_level, f.max_level) for f in controller.registrations[0].features}
            assert named == {name: (f.min_level, f.max_level) for name, f in SUPPORTED_FEATURES.items()}

    asyncio.run(run())


def test_node_registers_with_all_its_listeners(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller):
            await wait_for(lambda: controller.registrations)
            request = controller.registrations[0]
            assert (request.endpoint.host, request.endpoint.port) == ("127.0.0.1", 1)
            assert [(x.name, x.host, x.port, x.security_protocol) for x in request.listeners] == [
                ("GRPC", "127.0.0.1", 1, "GRPC"),
                ("PLAINTEXT", "h", 2, "PLAINTEXT"),
            ]

    asyncio.run(run())


def test_failed_directories_are_in_every_heartbeat_from_the_next_one_on(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as node:
            await wait_for(lambda: controller.heartbeats)
            assert not controller.heartbeats[-1].offline_log_dirs
            node.offline.append(b"d" * 16)
            node.lifecycle.request_heartbeat()
            await wait_for(lambda: list(controller.heartbeats[-1].offline_log_dirs) == [b"d" * 16])
            count = len(controller.heartbeats)
            await wait_for(lambda: len(controller.heartbeats) > count + 2)
            assert list(controller.heartbeats[-1].offline_log_dirs) == [b"d" * 16]

    asyncio.run(run())


def test_node_registers_again_with_the_same_incarnation_when_its_epoch_is_stale(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as node:
            await wait_for(lambda: controller.heartbeats)
            controller.known_epoch = None
            await wait_for(lambda: controller.heartbeats[-1].broker_epoch == 30)

            assert node.epochs_told == [20, 30]
            assert len({r.incarnation_id for r in controller.registrations}) == 1

    asyncio.run(run())


def test_node_tries_to_register_until_the_other_process_of_its_id_is_gone(wait_for):
    async def run():
        controller = FakeController()
        controller.errors["register"] = [
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            None,
        ]
        async with running(controller) as node:
            await wait_for(lambda: node.epochs_told == [20])
            assert len(controller.registrations) == 5

    asyncio.run(run())


def test_node_ends_when_it_is_refused_for_good():
    async def run():
        controller = FakeController()
        controller.errors["register"] = [ErrorCode.INCONSISTENT_CLUSTER_ID]
        with pytest.raises(ExceptionGroup) as raised:
            async with running(controller):
                await asyncio.sleep(5)
        [error] = raised.value.exceptions
        assert isinstance(error, TidelogError)
        assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID

    asyncio.run(run())


def test_shut_down_waits_until_the_node_leads_nothing(wait_for):
    async def run():
        controller = FakeController()
        controller.leads_something = True
        async with running(controller) as node:
            await wait_for(lambda: controller.heartbeats)
            stopping = asyncio.create_task(node.lifecycle.shut_down(5))
            await wait_for(lambda: controller.heartbeats[-1].want_shut_down)
            assert not stopping.done()
            controller.leads_something = False
            await asyncio.wait_for(stopping, 1)

    asyncio.run(run())


def test_shut_down_ends_at_its_timeout_when_the_controller_moves_nothing(wait_for, caplog):
    async def run():
        controller = FakeController()
        controller.leads_something = True
        async with running(controller) as node:
            await wait_for(lambda: controller.heartbeats)
            await asyncio.wait_for(node.lifecycle.shut_down(0.1), 1)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "did not move all leaderships within 0.1 s" in caplog.text


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH], ids=["nobody answers", "not registered"]
)
def test_shut_down_ends_at_once_when_there_is_nobody_to_hand_over_to(code, wait_for, caplog):
    async def run():
        controller = FakeController()
        async with running(controller) as node:
            await wait_for(lambda: controller.heartbeats)
            controller.errors["heartbeat"] = [code]
            await asyncio.wait_for(node.lifecycle.shut_down(30), 1)
            assert len(controller.registrations) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "stopping anyway" in caplog.text


def test_shut_down_ends_while_the_node_tries_to_register_again(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as node:
            await wait_for(lambda: controller.heartbeats)
            controller.errors["register"] = [ErrorCode.REQUEST_TIMED_OUT]
            controller.known_epoch = None
            await wait_for(lambda: len(controller.registrations) > 1)
            await asyncio.wait_for(node.lifecycle.shut_down(30), 2)

    asyncio.run(run())


def test_node_that_is_told_to_send_a_heartbeat_and_to_end_at_the_same_time_ends(wait_for):
    """The stop of a node waits for this task."""

    async def run():
        controller = FakeController()
        async with running(controller) as node:
            await wait_for(lambda: controller.heartbeats)
            for _ in range(5):
                # It comes to its pause.
                await asyncio.sleep(0)
            node.lifecycle.request_heartbeat()
            node.task.cancel()
            await asyncio.wait({node.task}, timeout=1)
            assert node.task.cancelled()

    asyncio.run(run())


@pytest.mark.parametrize(("heartbeat_ms", "attempt_s"), [(20, 0.5), (300, 0.9), (2_000, 2.0)])
def test_heartbeat_waits_for_a_silent_controller_no_longer_than_for_a_few_heartbeats(heartbeat_ms, attempt_s):
    """Else the sessions of all nodes end at a leader that was elected because the one before was paused."""

    async def run():
        controller = FakeController()
        async with running(controller, heartbeat_ms) as node:
            node.lifecycle.note_applied(1_000)
            await until(lambda: controller.attempts_s)
        assert controller.attempts_s[0] == pytest.approx(attempt_s)

    asyncio.run(run())


def test_node_hears_of_a_controller_with_each_heartbeat_that_is_answered(wait_for):
    async def run():
        controller = FakeController()
        controller.errors["heartbeat"] = [ErrorCode.REQUEST_TIMED_OUT, None]
        async with running(controller) as node:
            await wait_for(lambda: len(node.heard) > 1)
            assert set(node.heard) == {node.lifecycle.broker_epoch}
            assert len(node.heard) < len(controller.heartbeats), "the first one had no answer"

    asyncio.run(run())


def test_node_knows_that_its_session_may_be_over_before_anybody_tells_it(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as node:
            assert not node.lifecycle.has_session
            await wait_for(lambda: controller.heartbeats)
            assert not node.lifecycle.has_session, "it is fenced"
            node.lifecycle.note_applied(20)
            await wait_for(lambda: not node.lifecycle.is_fenced)
            assert node.lifecycle.has_session
            node.passed_ms += controller.session_timeout_ms
            assert not node.lifecycle.has_session
            await wait_for(lambda: node.lifecycle.has_session)
            controller.errors["heartbeat"] = [ErrorCode.NETWORK_EXCEPTION]
            sent = len(controller.heartbeats)
            await wait_for(lambda: len(controller.heartbeats) > sent + 1)
            assert node.lifecycle.has_session, "a heartbeat that failed does not end it"
            node.passed_ms += controller.session_timeout_ms
            assert not node.lifecycle.has_session

    asyncio.run(run())


def test_node_that_begins_a_new_session_learns_first_what_befell_it_before(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as node:
            node.lifecycle.note_applied(20)
            await wait_for(lambda: node.lifecycle.has_session)
            controller.metadata_offset = 25
            sent = len(controller.heartbeats)
            await wait_for(lambda: len(controller.heartbeats) > sent + 1)
            assert node.lifecycle.has_session, "it cannot have been fenced"
            node.passed_ms += controller.session_timeout_ms
            sent = len(controller.heartbeats)
            await wait_for(lambda: len(controller.heartbeats) > sent + 1)
            assert not node.lifecycle.has_session, "it may have been"
            node.lifecycle.note_applied(25)
            assert node.lifecycle.has_session

    asyncio.run(run())


def test_session_is_reckoned_from_when_the_heartbeat_was_sent(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as node:
            node.lifecycle.note_applied(20)
            await wait_for(lambda: node.lifecycle.has_session)

            async def slow(request, timeout_s, attempt_timeout_s):
                node.passed_ms += controller.session_timeout_ms
                return await FakeController.broker_heartbeat(controller, request, timeout_s, attempt_timeout_s)

            controller.broker_heartbeat = slow
            sent = len(controller.heartbeats)
            await wait_for(lambda: len(controller.heartbeats) > sent)
            assert not node.lifecycle.has_session

    asyncio.run(run())
