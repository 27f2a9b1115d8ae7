"""The champion in service: many questions at once, each to its answer, whatever workers do meanwhile.

What belongs here: what a request may wish for, micro-batched writing, ways round failing workers, changing the policy
without dropping a question, OpenAI's and MLflow's routes. What does not: which version is champion, and where traces
are kept (`ops.release`).
"""
