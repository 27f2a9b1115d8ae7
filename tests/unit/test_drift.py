"""What each kind of difference between two pools requires."""

from __future__ import annotations

import pytest

from ops.config import Pool, Price, Worker
from ops.release.drift import Plan, plan
from ops.workers.pool import difference

A, B = Worker(name="a", model="local/a"), Worker(name="b", model="local/b")


def pool(*workers: Worker) -> Pool:
    return Pool(name="test", workers=workers)


@pytest.mark.parametrize(
    ("new", "precache", "fine_tune", "evaluate", "costs", "reason"),
    [
        (pool(A), (), False, True, False, "removed: b (evaluate)"),
        (pool(A, B, Worker(name="c", model="local/c")), ("c",), True, False, False, "new: c (precache, fine-tune)"),
        (
            pool(A, B.model_copy(update={"temperature": 0.9})),
            ("b",), True, True, False, "changed: b (precache, fine-tune, evaluate)",
        ),
        (
            pool(A, B.model_copy(update={"price": Price(input=1, output=1)})),
            (), False, False, True, "another price: b (costs)",
        ),
        (
            pool(B.model_copy(update={"revision": "2"}), Worker(name="c", model="local/c")),
            ("b", "c"), True, True, False, "removed: a (evaluate)",
        ),
    ],
)  # fmt: skip
def test_the_least_that_suffices(
    new: Pool, precache: tuple[str, ...], fine_tune: bool, evaluate: bool, costs: bool, reason: str
) -> None:
    needed = plan(difference(pool(A, B), new))
    assert (needed.precache, needed.fine_tune, needed.evaluate, needed.costs) == (precache, fine_tune, evaluate, costs)
    assert reason in needed.reasons
    assert needed.costs_only == (pool(A, B).answers_key == new.answers_key)


def test_the_plan_names_workers_in_alphabetical_order() -> None:
    new = pool(*(Worker(name=name, model=f"local/{name}") for name in "zyx"))
    needed = plan(difference(pool(A, B), new))
    assert needed.precache == ("x", "y", "z")
    assert needed.reasons == ("new: x, y, z (precache, fine-tune)", "removed: a, b (evaluate)")


@pytest.mark.parametrize(
    "same",
    [pool(B, A), pool(A, B.model_copy(update={"concurrency": 1, "retries": 0}))],
    ids=["order", "limits"],
)
def test_order_and_limits_require_nothing(same: Pool) -> None:
    assert plan(difference(pool(A, B), same)) == Plan()
    assert (pool(A, B).answers_key, pool(A, B).prices_key) == (same.answers_key, same.prices_key)
