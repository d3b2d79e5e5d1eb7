"""The subscribe workload: consumers are the members of one group, which shares all topics of the run."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_chaos.deadline import Deadline
from tidelog_chaos.workload.group_notes import GroupNotes
from tidelog_chaos.workload.member import Member
from tidelog_chaos.workload.observer import OFFSETS_TOPIC, Observer
from tidelog_chaos.workload.reader import Reader
from tidelog_chaos.workload.settings import group_config, member_config, without_group
from tidelog_chaos.workload.workload import Workload
from tidelog_foundation.errors import TidelogError

_MEMBERS = 4
_DRAIN_S = 90.0
_LOG_S = 30.0


class SubscribeWorkload(Workload):
    """The group continues until it has committed everything; then an assigning consumer reads everything."""

    def _make_readers(self) -> Sequence[Member]:
        own = self._settings.consumer
        config = group_config(own, self._prefix, self._dice)
        self._config = {**self._clients_servers, **config}
        self._notes = GroupNotes(self._shared.history)
        self._observer = Observer(self._servers, self._admin, config["group.id"], self.keys, self._notes)
        return [self._member(number) for number in range(self._settings.consumers or _MEMBERS)]

    def _member(self, number: int) -> Member:
        name = f"{self._prefix}-{number}"
        config = member_config(self._config, self._settings.consumer, name, self._dice)
        return Member(f"member {number}", config, self._shared, self._notes, self._dice.randrange(2**32))

    @property
    def topics(self) -> list[str]:
        """Every topic of the run, and that of the groups."""
        return [*super().topics, OFFSETS_TOPIC]

    def start(self) -> None:
        """Create the first topics, and let the group form."""
        settings = {name: value for name, value in self._config.items() if name.startswith(("group.", "part"))}
        self._notes.formed(
            {**settings, **({"reorders_commits": True} if self._shared.library.reorders_commits else {})}
        )
        super().start()
        self._observer.start()

    def give_up(self) -> None:
        """End everything without waiting for it."""
        super().give_up()
        self._observer.request_stop()

    def _drain(self, deadline: Deadline) -> list[str]:
        """Let the group commit the end of every partition, and read its log to the end."""
        return self._wait_drained(deadline) + self._end([self._observer], deadline)

    def _wait_drained(self, deadline: Deadline) -> list[str]:
        limit = deadline.within(_DRAIN_S)
        try:
            ends = self._ends()
            behind = self._observer.wait_committed(ends, limit)
            logged_ns = self._observer.wait_read(deadline.within(_LOG_S))
        except TidelogError as error:
            return [f"it was not to be known how far the group has come: {error}"]
        if behind:
            places = ", ".join(f"{key} at {at} of {ends[key]}" for key, at in sorted(behind.items()))
            return [f"the group had not committed the end of all partitions after {limit.limit_s:.0f} s: {places}"]
        if logged_ns is None:
            return [f"the log of the groups was not read to its end in {_LOG_S:.0f} s"]
        self._notes.drained(ends, logged_ns)
        return []

    def _final_readers(self) -> Sequence[Reader]:
        config = {**self._clients_servers, **without_group(self._settings.consumer)}
        return [Reader("final reader", config, self._shared)]
