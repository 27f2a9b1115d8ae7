"""The tables and pictures that an evaluation is read by, each drawn from what is stored, and the pages that hold them.

What belongs here: exhibits (one file each in `exhibits`), how they are drawn, the HTML and the Markdown. What does not:
asking or scoring anybody (`ops.stages`, `ops.evaluation`), statistics (`ops.evaluation.statistics`). Names and numbers
only: no question, answer or workflow is shown.
"""
