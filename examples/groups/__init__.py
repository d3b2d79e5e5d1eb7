"""Small programs that show one thing each: delivery semantics, rebalances, subscriptions, partitioners, replay."""
