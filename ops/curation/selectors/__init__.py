"""The selectors: one file per selector, named as in recipes, with one `@selector` function.

What belongs here: which problems of a domain are preferred. What does not: code that several selectors share
(`ops.curation`). `ops.curation.selector.SELECTORS` lists this folder; no other code names a selector.
"""
