"""The exhibits of a report: each file has the name of its exhibit and contains one `@exhibit` function.

An exhibit selects the evidence's figures for its tables and charts; it neither reads files nor draws.
`ops.reports.exhibit.EXHIBITS` finds the exhibits in this folder, so they need no other registration.
"""
