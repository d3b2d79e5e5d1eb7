"""The steps of a micro-batch of a copying query at which tests kill its processes."""

from __future__ import annotations

from tidelog_spark.sink.execution import Execution
from tidelog_spark.sink.protocol import Append, Begin, Command, Complete, Result, TakeOver, Write

END_PLANNED, RANGES_PLANNED, READING = "end planned", "ranges planned", "reading"
COMMIT_BEGINS, COMMIT_ENDS = "commit begins", "commit ends"
_AFTER_COMMAND: dict[type[Command], str] = {
    Begin: "begun",
    Write: "prepared",
    Append: "decided",
    TakeOver: "taken over",
    Complete: "completed",
}
PLANNING_STEPS = (END_PLANNED, RANGES_PLANNED)
TASK_STEPS = (READING, _AFTER_COMMAND[Begin], _AFTER_COMMAND[Write])
COMMIT_STEPS = (
    COMMIT_BEGINS,
    *(_AFTER_COMMAND[command] for command in (Append, TakeOver, Complete)),
    COMMIT_ENDS,
)
"""The steps of the driver's commit; after the last one, Spark writes its commit log."""
STEPS = (*PLANNING_STEPS, *TASK_STEPS, *COMMIT_STEPS)


class SteppedExecution(Execution):
    """Calls `reach` with the step after a command."""

    def execute(self, command: Command) -> Result:
        result = super().execute(command)
        is_commit = self._write is None
        # A task appends to the journal as well, when its run claims the sink.
        if type(command) in _AFTER_COMMAND and (is_commit or not isinstance(command, Append)):
            self.reach(_AFTER_COMMAND[type(command)])
        return result

    def reach(self, step: str) -> None:
        """Stop or crash here, or return."""
        raise NotImplementedError
