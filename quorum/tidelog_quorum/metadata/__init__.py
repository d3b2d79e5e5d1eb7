"""The metadata of a cluster: the records of its log, their codec, and the image that they build."""
