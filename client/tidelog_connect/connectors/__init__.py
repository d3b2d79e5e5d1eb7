"""Connectors: the interface that they implement, the settings that all have, and the registry of those installed."""
