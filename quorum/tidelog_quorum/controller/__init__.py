"""The controller: decides requests by the metadata image, without I/O, clock or randomness."""
