"""Rolling restarts: the pods to restart next. Pure.

1. A pod that has not the wanted template and no running container is restarted at once. It serves nobody, and a
   corrected setting must reach a pod that cannot start with the former one.
2. Otherwise, no pod is restarted while another one is missing, stopping or not ready: one process is out at a time.
3. A pod that runs but is not ready restarts first, since the others wait for it. Controllers restart before nodes, as
   in an upgrade, the controller that leads after the other ones, and the highest id first.
4. A running pod is restarted only if the cluster answers that the process is safe to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog_operator.resources import CONTROLLER


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. It ``is_current`` if it has the wanted template and address, and ``is_running`` if its container runs.

    ``machine`` is the address of its machine, if it has one already.
    """

    name: str
    uid: str
    role: str
    id: int
    is_ready: bool
    is_running: bool
    is_stopping: bool
    is_current: bool
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class Replace:
    """Delete pods that serve nobody."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class AskThenRestart:
    """Restart the pod if it is safe to stop."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Restart nothing now; ``reason`` says what is waited for."""

    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """Every pod has the wanted template and is ready."""


Step = Replace | AskThenRestart | WaitFor | Complete


def next_step(pods: Sequence[Pod], missing: Sequence[str], leader_id: int | None) -> Step:
    """Return the next step of a rolling restart.

    ``missing`` are the names of pods that do not exist yet, ``leader_id`` is the leading controller if it is known.
    """
    broken = tuple(p for p in pods if not p.is_current and not p.is_running and not p.is_stopping)
    if broken:
        return Replace(broken)
    outdated = [pod for pod in pods if not pod.is_current and not pod.is_stopping]
    chosen = min(outdated, key=lambda pod: _order(pod, leader_id), default=None)
    absent = [*missing, *(pod.name for pod in pods if pod.is_stopping)]
    unready = [pod.name for pod in pods if not pod.is_ready and not pod.is_stopping and pod != chosen]
    if absent or unready:
        return WaitFor(f"waiting for {', '.join(sorted([*absent, *unready]))} to be ready")
    return Complete() if chosen is None else AskThenRestart(chosen)


def _order(pod: Pod, leader_id: int | None) -> tuple[bool, bool, bool, int]:
    is_leader = pod.role == CONTROLLER and pod.id == leader_id
    return pod.is_ready, pod.role != CONTROLLER, is_leader, -pod.id
