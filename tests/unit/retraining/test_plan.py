"""What each kind of difference between two pools requires."""

from __future__ import annotations

import pytest

from ops.config import Pool, Price, Worker
from ops.retraining.plan import RetrainingPlan, plan
from ops.workers.pool import difference

A, B = Worker(name="a", model="local/a"), Worker(name="b", model="local/b")
BELOW, PAYS = "if it falls below the gate", "if a newcomer pays"


def pool(*workers: Worker) -> Pool:
    return Pool(name="test", workers=workers)


@pytest.mark.parametrize(
    ("new", "precache", "fine_tune", "evaluate", "costs", "reason"),
    [
        (pool(A), (), BELOW, True, False, "removed: b (evaluate, fine-tune if below the gate)"),
        (
            pool(A, B, Worker(name="c", model="local/c")),
            ("c",), PAYS, True, False, "new: c (precache, evaluate, fine-tune if it pays)",
        ),
        (
            pool(A, B.model_copy(update={"temperature": 0.9})),
            ("b",), BELOW, True, False, "changed: b (precache, evaluate, fine-tune if below the gate)",
        ),
        (
            pool(A, B.model_copy(update={"price": Price(input=1, output=1)})),
            (), "never", False, True, "another price: b (costs)",
        ),
        (
            pool(B.model_copy(update={"revision": "2"}), Worker(name="c", model="local/c")),
            ("b", "c"), "if below or if a newcomer pays", True, False,
            "removed: a (evaluate, fine-tune if below the gate)",
        ),
    ],
)  # fmt: skip
def test_the_least_that_suffices(
    new: Pool, precache: tuple[str, ...], fine_tune: str, evaluate: bool, costs: bool, reason: str
) -> None:
    needed = plan(difference(pool(A, B), new), described=True)
    assert (needed.precache, needed.fine_tune, needed.evaluate, needed.costs) == (precache, fine_tune, evaluate, costs)
    assert reason in needed.reasons
    assert (needed.costs and not needed.evaluate) == (pool(A, B).answers_key == new.answers_key)


def test_the_plan_names_workers_in_alphabetical_order() -> None:
    new = pool(*(Worker(name=name, model=f"local/{name}") for name in "zyx"))
    needed = plan(difference(pool(A, B), new), described=True)
    assert needed.precache == ("x", "y", "z")
    assert str(needed) == (
        "new: x, y, z (precache, evaluate, fine-tune if it pays); removed: a, b (evaluate, fine-tune if below the gate)"
    )


@pytest.mark.parametrize(
    "same",
    [
        pool(B, A),
        pool(A, B.model_copy(update={"concurrency": 1, "retries": 0})),
        pool(A, B.model_copy(update={"tags": ("code",)})),
    ],
    ids=["order", "limits", "tags"],
)
def test_order_limits_and_tags_require_nothing(same: Pool) -> None:
    needed = plan(difference(pool(A, B), same), described=True)
    assert needed == RetrainingPlan() and needed.is_empty
    assert (pool(A, B).answers_key, pool(A, B).prices_key) == (same.answers_key, same.prices_key)


def test_a_champion_without_worker_descriptions_is_not_trained_for_a_new_worker() -> None:
    new = pool(A, B, Worker(name="c", model="local/c"))
    needed = plan(difference(pool(A, B), new), described=False)
    assert (needed.precache, needed.evaluate, needed.fine_tune) == (("c",), True, "never")
    assert str(needed) == "new: c (precache, evaluate; not offered: the champion has no worker descriptions)"
