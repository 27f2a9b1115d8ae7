"""The selectors: one file per selector, named as in recipes, with one `@selector` function.

A selector decides which problems of a domain are preferred. Code that several selectors share belongs in
`ops.curation`. `ops.curation.selector.SELECTORS` lists this folder; no other code names a selector.
"""
