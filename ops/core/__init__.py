"""What every room speaks of: problems, responses, places on disk, processes, errors.

What belongs here: words and files that all floors share, and nothing that acts. What does not: settings
(`ops.config`), and anything that only one room needs.
"""
