"""The benchmarks: one file per benchmark, with one `Benchmark` of the file's name.

Each file states the source of a benchmark's rows, converts them to problems, and lists caveats. Code that several
benchmarks share belongs in `ops.benchmarks`. `ops.benchmarks.registry` lists this folder; no other module names a
benchmark.
"""
