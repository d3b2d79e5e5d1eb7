"""The metrics that clients push to a node (KIP-714): subscriptions, the rules for pushes, and what they leave."""
