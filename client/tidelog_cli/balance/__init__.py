"""``tidelog cluster rebalance`` and the moves of ``tidelog node drain``: the planner (pure) and the execution."""
