"""Small programs with one topic each: delivery semantics, rebalances, subscriptions, partitioners, replay."""
