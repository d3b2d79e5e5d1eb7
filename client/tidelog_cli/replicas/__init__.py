"""``tidelog verify``: a comparison of replicas."""
