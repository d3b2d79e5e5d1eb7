"""The Kubernetes operator: it makes clusters, topics and users what their custom resources say.

Pure modules decide: ``resources`` reads a resource, ``manifests`` and ``settings`` make the wanted objects, ``rolling``
and ``scaling`` choose the next step of a change. Shells act: ``kubernetes`` talks to the API server,
``cluster_client`` to Tidelog, ``reconciliation`` joins them, and ``handlers`` is called by kopf. Every reconciliation
begins with what it observes and keeps nothing between two steps, so that the operator may be stopped at any time.
"""
