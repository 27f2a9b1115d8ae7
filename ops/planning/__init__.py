"""What a recipe needs and costs, before anything is spent: memory, disk, calls, USD, hours, and what is missing.

What belongs here: arithmetic on settings, published figures and what lies on this machine; the list of requirements;
the refusal to start before it is empty. What does not: anything that acts, any call, and torch.
"""
