"""What each kind of difference between two pools requires."""

from __future__ import annotations

import pytest

from ops.config import Pool, Price, Worker
from ops.release.drift import Plan, PoolDifference, difference, plan

A, B = Worker(name="a", model="local/a"), Worker(name="b", model="local/b")


def pool(*workers: Worker) -> Pool:
    return Pool(name="test", workers=workers)


@pytest.mark.parametrize(
    ("new", "found", "required"),
    [
        (pool(A), PoolDifference(removed=("b",)), ((), False, True)),
        (pool(A, B, Worker(name="c", model="local/c")), PoolDifference(added=("c",)), (("c",), True, False)),
        (
            pool(A, B.model_copy(update={"temperature": 0.9})),
            PoolDifference(changed=("b",)),
            (("b",), True, True),
        ),
        (
            pool(A, B.model_copy(update={"price": Price(input=1, output=1)})),
            PoolDifference(repriced=("b",)),
            ((), False, False),
        ),
        (
            pool(B.model_copy(update={"revision": "2"}), Worker(name="c", model="local/c")),
            PoolDifference(added=("c",), removed=("a",), changed=("b",)),
            (("b", "c"), True, True),
        ),
    ],
)
def test_the_least_that_suffices(
    new: Pool, found: PoolDifference, required: tuple[tuple[str, ...], bool, bool]
) -> None:
    assert difference(pool(A, B), new) == found
    decided = plan(found)
    assert (decided.precache, decided.fine_tune, decided.evaluate) == required
    assert decided.reasons
    assert decided.costs_only == (pool(A, B).answers_key == new.answers_key)
    assert decided.costs == bool(found.repriced)


@pytest.mark.parametrize(
    "same",
    [pool(B, A), pool(A, B.model_copy(update={"concurrency": 1, "retries": 0}))],
    ids=["order", "limits"],
)
def test_order_and_limits_require_nothing(same: Pool) -> None:
    found = difference(pool(A, B), same)
    assert found.is_empty
    assert plan(found) == Plan()
    assert (pool(A, B).answers_key, pool(A, B).prices_key) == (same.answers_key, same.prices_key)
