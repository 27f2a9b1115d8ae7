"""Types and functions that all packages share: problems, responses, paths, processes, errors, charts.

What belongs here: types and file formats that several packages use. What does not: settings (`ops.config`), and code
that only one package needs.
"""
