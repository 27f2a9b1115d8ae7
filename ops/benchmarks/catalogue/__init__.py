"""The benchmarks: one file each, named as the benchmark, that holds one `Benchmark`.

What belongs here: the source of a benchmark's rows, their conversion to problems, caveats. What does not: code that
several benchmarks share (`ops.benchmarks`). No other module names one: `ops.benchmarks.registry` lists this folder.
"""
