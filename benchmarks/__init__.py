"""Measurements of Tidelog: ``python -m benchmarks``, or ``make bench``.

Each ``*_bench.py`` has ``run(options) -> list[Result]`` and can be run alone (``python -m benchmarks.log_bench``).
A figure against something else is a ratio of the two taken in turns in one run, see :mod:`benchmarks.rounds`.
"""
