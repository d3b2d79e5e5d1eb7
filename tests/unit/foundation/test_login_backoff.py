"""The wait after refused logins."""

from tidelog_foundation.transport.login_backoff import LoginBackoff


def test_wait_doubles_with_each_refusal_and_never_exceeds_its_maximum():
    backoff = LoginBackoff(1.0, lambda: 1.0)
    waits = []
    for _ in range(6):
        backoff.refused(10.0)
        waits.append(round(backoff.remaining_s(10.0), 3))
    assert waits == [0.12, 0.24, 0.48, 0.96, 1.0, 1.0]
    backoff.reset()
    assert backoff.remaining_s(10.0) == 0
