"""The benchmarks: one file each, named as the benchmark, that holds one `Benchmark`.

What belongs here: where a benchmark's rows are, how they become ours, what to beware of. What does not: what
several benchmarks share (`ops.benchmarks`). Nothing else names one: `ops.benchmarks.registry` lists this folder.
"""
