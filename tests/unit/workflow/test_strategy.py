"""The shape of each of these workflows, classified by hand, and counts over many of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.workflow.grammar import Access, Step, Workflow
from ops.workflow.strategy import (
    SHAPES,
    Diversity,
    classify_shape,
    count_worker_use,
    direct_edges,
    measure_diversity,
    workflow_pattern,
)


def workflow(*steps: str | tuple[str, Access]) -> Workflow:
    """Make steps of workers 0, 1, 2 …: each a subtask, or a subtask with its access."""
    pairs = [step if isinstance(step, tuple) else (step, "none") for step in steps]
    return Workflow(tuple(Step(index, subtask, access) for index, (subtask, access) in enumerate(pairs)))


A, B, C = "Solve it.", "Solve it in another way.", "Compute x first."
TABLE: list[tuple[str, Workflow]] = [
    ("empty", workflow()),
    ("single", workflow(A)),
    ("single", workflow("Verify by evaluating the expression, and answer.")),
    ("single", workflow("Work out a plan for the proof, then prove it.")),
    ("single", workflow(A, B)),  # no step sees the first one
    ("single", workflow(A, ("Check it.", "all"), "Forget that and solve it.")),
    ("chain", workflow("Find x.", ("Compute it.", "all"))),
    ("chain", workflow("Look it up.", ("Turn it into a formula.", "all"), ("Evaluate it.", "all"))),
    ("chain", workflow(A, ("Improve it.", (0,)), ("Finish it.", (1,)))),
    ("chain", workflow(A, "unused", ("Finish it.", (0,)))),
    ("chain", workflow("Plan the program.", ("Write the program that follows the plan above.", "all"))),
    ("chain", workflow("Describe the steps of the solution.", ("Carry out the steps.", "all"))),
    ("chain", workflow(A, ("List every bug.", "all"), ("Write the corrected program.", "all"))),
    ("chain", workflow(A, ("Use the result above to compute y, then check it.", "all"))),
    ("chain", workflow(A, ("Read the rest.", "all"))),
    ("chain", workflow("Lies das Rätsel.", ("Prüfe die Lösung.", "all"))),  # only English is recognised
    ("verify_last", workflow(A, ("Check the result above.", "all"))),
    ("verify_last", workflow(A, ("Double-check the arithmetic and give the final answer.", "all"))),
    ("verify_last", workflow(A, ("Carefully verify each step, then answer.", "all"))),
    ("verify_last", workflow(A, ("Your task is to review the solution above.", "all"))),
    ("verify_last", workflow(A, ("Look for a gap in the derivation and close it.", "all"))),
    ("verify_last", workflow(A, ("Find any mistakes above and correct them.", "all"))),
    ("verify_last", workflow(A, ("Recompute every expression above; answer with one that is right.", "all"))),
    ("verify_last", workflow(A, C, ("Validate both results and answer.", "all"))),
    ("verify_last", workflow(A, ("Improve it.", "all"), ("Proofread it.", "all"))),
    ("verify_last", workflow(A, B, ("Critique both and answer.", "all"))),
    ("verify_last", workflow(A, ("CONFIRM the answer.", (0,)))),
    ("verify_last", workflow(A, ("Try to break the proof; mend it where it breaks.", "all"))),
    ("aggregate", workflow(A, B, ("Combine both.", "all"))),
    ("aggregate", workflow(A, B, C, ("Choose the best of the three answers.", "all"))),
    ("aggregate", workflow(A, B, ("Compare both results and resolve any difference.", (0, 1)))),
    ("aggregate", workflow(A, "unused", C, ("Weigh the two.", (0, 2)))),
    ("aggregate", workflow(A, B, ("Write a summary, which I will check.", "all"))),
    ("tree", workflow(A, B, ("Combine both.", "all"), ("State the answer alone.", "all"))),
    ("tree", workflow(A, ("Improve it.", "all"), B, ("Combine both.", "all"))),
    ("tree", workflow(A, B, C, "Name the units.", ("Merge.", (0, 1)), ("Merge.", (2, 3)), ("Merge.", (4, 5)))),
    ("tree", workflow(A, ("Go on.", (0,)), C, ("Go on.", (2,)), ("Merge.", (1, 3)))),
    ("mixed", workflow(A, ("One half.", (0,)), ("The other half.", (0,)), ("Merge.", (1, 2)))),
    ("mixed", workflow(A, B, ("Sum.", (0, 1)), ("Difference.", (0, 1)), ("Divide.", (2, 3)))),
    ("debate", workflow(A, B, ("Rebut the weaker of the two.", "all"), ("Decide.", "all"))),
    ("debate", workflow(A, B, ("Argue against the first answer.", "all"), ("Judge.", "all"))),
    ("debate", workflow("Argue for yes.", "Argue for no.", ("Respond to the other side.", "all"), ("Sum up.", "all"))),
    ("debate", workflow(A, B, ("Critique both attempts.", "all"), ("Give the better one.", "all"))),
    ("debate", workflow(A, B, ("Refute whichever is wrong and answer.", "all"))),
    ("debate", workflow(A, B, ("Defend A.", (0, 1)), ("Defend B.", (0, 1)), ("Check who is right.", (2, 3)))),
    ("chain", workflow(A, ("Argue against it.", "all"), ("Answer.", "all"))),  # only one attempt to criticise
    ("aggregate", workflow("Challenge the premise.", A, ("Merge.", "all"))),
    ("abdication", workflow("Plan the rest of the work.")),
    ("abdication", workflow("Decide which model should solve it.", (A, "all"))),
    ("abdication", workflow(A, ("Decide what to do next.", "all"))),
    ("abdication", workflow(A, B, ("Orchestrate the remaining steps.", "all"))),
    ("abdication", workflow("You are the conductor: write a plan.", (A, "all"))),
    ("abdication", workflow("Write model_id, subtasks and access_list for this.")),
    ("abdication", workflow("Design a workflow for this question.", ("Check it.", "all"))),
    ("abdication", workflow("Assign the parts to the other models.", (A, "all"))),
    ("abdication", workflow("Coordinate the other workers.", ("Rebut it.", "all"))),
    ("single", workflow("Plan the rest of the work.", A)),  # no later step sees the plan
]


@pytest.mark.parametrize(("name", "workflow"), TABLE, ids=[f"{i} {name}" for i, (name, _) in enumerate(TABLE)])
def test_shape(name: str, workflow: Workflow) -> None:
    assert classify_shape(workflow) == name, [step.subtask for step in workflow.steps]


def test_every_shape_has_examples() -> None:
    assert {name for name, _ in TABLE} == set(SHAPES)
    assert len(TABLE) >= 40


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_binary_workflows_are_never_mixed(sees_all: list[bool]) -> None:
    steps = tuple(Step(0, "Go on.", "all" if sees else "none") for sees in sees_all)
    assert classify_shape(Workflow(steps)) in {"single", "chain", "aggregate", "tree"}


@given(st.data(), st.integers(1, 9))
def test_graph_without_shortcuts_reaches_the_same(data: st.DataObject, count: int) -> None:
    access = [tuple(data.draw(st.lists(st.integers(0, max(0, i - 1)), unique=True, max_size=i))) for i in range(count)]
    workflow = Workflow(tuple(Step(0, "Go on.", seen) for seen in access))
    edges = direct_edges(workflow)

    def reached(links: list[tuple[int, int]]) -> set[tuple[int, int]]:
        closure = set(links)
        for middle in range(count):
            closure |= {(a, d) for a, b in closure for c, d in closure if b == c == middle}
        return closure

    everything = [(seen, index) for index in range(count) for seen in workflow.visible_steps(index)]
    assert set(edges) <= set(everything)
    assert reached(edges) == reached(everything)
    for edge in edges:  # and none of them can be removed
        assert edge not in reached([other for other in edges if other != edge])


def test_pattern_leaves_out_the_words() -> None:
    workflow = Workflow((Step(2, "a"), Step(0, "b", "all"), Step(1, "c", (0,))))
    other = Workflow((Step(2, "x"), Step(0, "y", (0,)), Step(1, "z", (0,))))
    assert workflow_pattern(workflow) == workflow_pattern(other) == "2 0<0 1<0"
    assert workflow_pattern(Workflow((Step(2, "a"), Step(0, "b")))) == "2 0"
    assert workflow_pattern(Workflow(())) == ""


def test_diversity_counts_and_weighs() -> None:
    assert measure_diversity([]) == Diversity(0, 0.0)
    assert measure_diversity(["a"] * 9) == Diversity(1, 0.0)
    assert measure_diversity(["a", "b", "c", "d"]) == Diversity(4, 2.0)
    uneven = measure_diversity(["a", "a", "a", "b"])
    assert uneven.distinct == 2
    assert math.isclose(uneven.entropy, 0.8112781, rel_tol=1e-6)


def test_use_by_domain() -> None:
    steps = [("mmlu", "editor"), ("math", "b"), ("math", "a"), ("math", "a")]
    assert count_worker_use(steps) == {"math": {"a": 2, "b": 1}, "mmlu": {"editor": 1}}
    assert list(count_worker_use(steps)) == ["math", "mmlu"]
    assert count_worker_use([]) == {}
