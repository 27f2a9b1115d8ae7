"""The selectors: one file each, named as recipes name it, that holds one `@selector` function.

What belongs here: which problems of a domain are preferred. What does not: what several selectors go by
(`ops.curation`). Nothing else names a selector: `ops.curation.selector.SELECTORS` lists this folder.
"""
