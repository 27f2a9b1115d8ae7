"""No test waits for a process or a thread without a time-out of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
STARTING = {"run", "check_output", "check_call", "call"}
WAITING = {"communicate", "wait", "join", "result"}
"""Methods of processes, threads and futures; those of asyncio are awaited, or take no time-out."""


def unbounded_waits(source: str) -> Iterator[tuple[int, str]]:
    """Return line and function of each call that may wait without end."""
    tree = ast.parse(source)
    awaited = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Await)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or id(node) in awaited:
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        starts = owner == "subprocess" and name in STARTING
        waits = name in WAITING and not node.args and not owner.endswith("task")
        bounded = any(keyword.arg in ("timeout", None) for keyword in node.keywords)
        if (starts or waits) and not bounded:
            yield node.lineno, f"{owner}.{name}"


def test_every_wait_has_a_timeout() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}: {call}"
        for file in sorted(TESTS.rglob("*.py"))
        for line, call in unbounded_waits(file.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_wait_without_a_timeout_is_found() -> None:
    source = """
subprocess.run(command)
process.communicate()
process.wait(5)
thread.join()
subprocess.run(command, timeout=5)
async def together():
    await barrier.wait()
"""
    calls = [call for _, call in unbounded_waits(source)]
    assert sorted(calls) == ["process.communicate", "subprocess.run", "thread.join"]
