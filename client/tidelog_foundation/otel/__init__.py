"""Metrics and traces of a server's process by OTLP, when OpenTelemetry's environment variables ask for them.

Only :mod:`.library`, :mod:`.metric_data` and :mod:`.spans` import OpenTelemetry, which the extra ``otel`` installs. A
process that nobody asks to export imports none of them.
"""
