"""The pool of worker models: asking them, what that cost, and how good each one is."""
