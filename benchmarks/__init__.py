"""Benchmarks of Tidelog: ``python -m benchmarks``, or ``make bench``.

Each ``*_bench.py`` has ``run(options) -> list[Result]`` and can be run alone (``python -m benchmarks.log_bench``). A
comparison is the ratio of two figures that are measured alternately in one run, see :mod:`benchmarks.rounds`.
"""
