"""The benchmarks: one file per benchmark, of the same name, with one `Benchmark`.

What belongs here: the source of a benchmark's rows, their conversion to problems, caveats. What does not: code that
several benchmarks share (`ops.benchmarks`). `ops.benchmarks.registry` lists this folder; no other module names a
benchmark.
"""
