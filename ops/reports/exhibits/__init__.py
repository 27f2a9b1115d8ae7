"""What a report shows: one file each, named as its exhibit, that holds one `@exhibit` function.

What belongs here: which numbers of the evidence stand in which table or chart. What does not: reading files, drawing.
Nothing else names an exhibit: `ops.reports.exhibit.EXHIBITS` lists this folder.
"""
