"""The answer to a waiting request: given once, in the step that settles it, by the first one to settle it."""

import asyncio
import gc
import weakref

import pytest

from tidelog_node.event_loop import Pending


def outcome_of(pending):
    return "cancelled" if pending.is_cancelled else pending.error or pending.result()


@pytest.mark.parametrize("waits_first", [True, False])
def test_value_and_error_are_told_at_once_to_who_waits(waits_first):
    error = ValueError("no")
    for settle, expected in ((lambda p: p.settle(7), 7), (lambda p: p.fail(error), error)):
        told = []
        pending = Pending()
        assert not pending.is_settled
        if waits_first:
            pending.then(lambda p, told=told: told.append(outcome_of(p)))
            assert told == []
            settle(pending)
        else:
            settle(pending)
            pending.then(lambda p, told=told: told.append(outcome_of(p)))
        assert told == [expected]
        assert pending.is_settled
        assert not pending.cancel(), "there is nothing to give up"
        assert told == [expected]


def test_cancelling_abandons_first_and_then_tells_who_waits():
    said = []
    pending = Pending(lambda: said.append("abandoned"))
    pending.then(lambda p: said.append(outcome_of(p)))
    assert pending.cancel()
    assert not pending.cancel()
    assert said == ["abandoned", "cancelled"]
    with pytest.raises(asyncio.CancelledError):
        pending.result()


def test_it_is_settled_once():
    pending = Pending()
    pending.settle(1)
    with pytest.raises(AssertionError):
        pending.settle(2)
    with pytest.raises(AssertionError):
        pending.fail(ValueError())
    assert pending.result() == 1


@pytest.mark.parametrize("end", [lambda p: p.settle(1), lambda p: p.fail(ValueError()), lambda p: p.cancel()])
def test_nothing_is_left_to_the_collector(end):
    """One for every request: cycles of them would have it run all the time."""

    class Request:
        pass

    request = Request()
    request.pending = Pending(lambda request=request: None)
    request.pending.then(lambda _, request=request: None)
    reference = weakref.ref(request)
    end(request.pending)
    gc.disable()
    try:
        del request
        assert reference() is None
    finally:
        gc.enable()


def test_it_can_be_awaited_and_a_cancelled_task_gives_it_up():
    async def run():
        value, error, given_up = Pending(), Pending(), Pending()
        tasks = [asyncio.ensure_future(pending) for pending in (value, error, given_up)]
        await asyncio.sleep(0)
        value.settle("a")
        error.fail(ValueError("no"))
        tasks[2].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[0] == "a"
        assert isinstance(results[1], ValueError)
        assert isinstance(results[2], asyncio.CancelledError)
        assert given_up.is_cancelled

    asyncio.run(run())


def test_who_awaits_what_was_cancelled_is_cancelled_too():
    async def run():
        pending = Pending()
        future = pending.as_future()
        assert pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(run())


def test_who_settles_it_does_not_suffer_from_who_waits():
    async def run():
        heard = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
        pending = Pending()
        pending.then(lambda _: 1 / 0)
        pending.settle(None)
        assert [type(error) for error in heard] == [ZeroDivisionError]

    asyncio.run(run())
