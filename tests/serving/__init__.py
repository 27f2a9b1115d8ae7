"""The server under test: a process of its own, whose Conductor says what a file tells it to."""
