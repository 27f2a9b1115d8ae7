"""Types and functions that every package uses: problems, responses, paths, processes, errors and charts.

A type or file format belongs here if several packages use it. Settings belong in `ops.config`, and code that only one
package needs belongs in that package.
"""
