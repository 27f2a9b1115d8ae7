"""Arms of a study: one row each, paired by question with the arms that they are compared with."""

from __future__ import annotations

from dataclasses import replace

from ops.config.studies import UNCHANGED
from ops.evaluation.arms import Arm, make_arm_table, make_claims_table, summarize_arms
from ops.results.outcome_rows import OutcomeRow


def row(benchmark: str, problem: int, correct: int, *, valid: bool = True, unscorable: bool = False) -> OutcomeRow:
    status = "answered" if valid else "no_workflow"
    return OutcomeRow(
        benchmark, str(problem), 0, "math", correct, valid, "", status, 1, ("ada",), 10, 0.002, 0.1, "", "", unscorable,
        pattern="0" if problem % 2 else "1",
    )  # fmt: skip


def rows(seen: str, unseen: str) -> list[OutcomeRow]:
    """`1` correct, `0` wrong, `-` no workflow."""
    marks = {"math500": seen, "aime25": unseen}
    questions = [(name, at, mark) for name, own in marks.items() for at, mark in enumerate(own)]
    return [row(name, at, int(mark == "1"), valid=mark != "-") for name, at, mark in questions]


COLD = rows("1000", "1000")
BASE = [
    Arm(UNCHANGED, [rows("1100", "1100")], {"minus cold start": "cold start"}, {"s of GRPO": 200.0}),
    Arm("cold start", [COLD]),
]
OTHER = Arm("wider", [rows("111-", "1000")], {"minus cold start": "cold start", f"minus {UNCHANGED}": UNCHANGED})


def cells(*seeds: list[Arm]) -> dict[str, dict[str, object]]:
    made = make_arm_table(dict(enumerate(seeds)))
    assert len(set(made.head)) == len(made.head)
    return {str(line[0]): dict(zip(made.head, line, strict=True)) for line in made.rows}


def test_a_row_holds_the_accuracies_of_an_arm_and_its_differences() -> None:
    made = cells([*BASE, OTHER])
    as_it_is, cold, wider = made[UNCHANGED], made["cold start"], made["wider"]
    assert as_it_is["in-domain minus as it is, points"] == cold["in-domain minus cold start, points"] == ""
    assert str(cold["in-domain, %"]).startswith("25.0 (4.6 … ") and str(as_it_is["in-domain, %"]).startswith("50.0 (")
    assert (as_it_is["s of GRPO"], cold["s of GRPO"]) == ("200", "")
    assert str(wider["in-domain, %"]).startswith("75.0 (")
    assert str(wider["in-domain minus cold start, points"]).startswith("50.0 (")
    assert str(wider["in-domain minus as it is, points"]).startswith("25.0 (")
    assert str(wider["OOD minus as it is, points"]).startswith("-25.0 (")
    assert wider["right if valid, %"] == "57.1"  # 4 of 7
    assert (wider["USD a question"], wider["entropy, bits"], wider["valid, %"]) == ("0.002000", "0.99", "87.5")


def test_several_seeds_have_the_error_over_seeds_and_an_arm_of_one_seed_stands_beside_each() -> None:
    first: list[Arm] = [*BASE, OTHER]
    second: list[Arm] = [*BASE, Arm("wider", [rows("0000", "1000")], OTHER.compared_with)]
    made = cells(first, second)["wider"]
    assert made["in-domain, %"] == "37.5 ± 37.5"  # 75 and 0
    assert made["in-domain minus as it is, points"] == "-12.5 ± 37.5"  # 25 and -50
    opponent = Arm("vote", [rows("1110", "1110")], {"minus Conductor": UNCHANGED})
    assert cells([*BASE, opponent], BASE)["vote"]["in-domain minus Conductor, points"].startswith("25.0 (-"), (
        "no error over seeds is no certainty"
    )


def test_subjects_that_were_not_trained_on_are_a_group_of_their_own() -> None:
    unseen = frozenset({"math500/2", "math500/3"})
    made = cells([replace(arm, unseen_keys=unseen) for arm in (*BASE, OTHER)])
    as_it_is, wider = made[UNCHANGED], made["wider"]
    assert not [head for head in wider if head.startswith("in-domain")]
    assert (as_it_is["trained subjects, %"], as_it_is["unseen subjects, %"]) == (
        "100.0 (34.2 … 100.0)", "0.0 (0.0 … 65.8)",
    )  # fmt: skip
    assert str(wider["unseen subjects minus as it is, points"]).startswith("50.0 (")
    assert str(wider["trained subjects minus as it is, points"]).startswith("0.0 (-")
    assert str(wider["OOD, %"]).startswith("25.0 (")


def test_findings_hold_each_seed_and_each_family_and_count_unreachable_workers() -> None:
    families = {f"{name}/{at}": "even" if at % 2 == 0 else "odd" for name in ("math500", "aime25") for at in range(10)}
    found = summarize_arms({1: BASE, 2: BASE}, families)
    assert [line[:2] for line in found.details.rows] == [[seed, arm.name] for seed in (1, 2) for arm in BASE]
    assert [line[:3] for line in found.families.rows] == [["even", "50", "50"], ["odd", "50", "0"]]
    assert found.note == "" and found.picture.startswith(b"\x89PNG")
    away = Arm("away", [[*rows("1", "1"), row("math500", 9, 0, unscorable=True)]])
    assert summarize_arms({1: [away]}).note == "1 rows of unreachable workers are left out."
    assert summarize_arms({1: BASE}).details.rows == []


def test_claims_pair_an_arm_with_every_opponent_over_all_seeds_and_adjust_their_p_values() -> None:
    better, worse = rows("1" * 40, "1" * 40), rows("0" * 30 + "1" * 10, "0" * 20 + "1" * 20)
    beside = {"minus Conductor": "ours"}
    opponents = [Arm("theirs", [worse], beside), Arm("the same", [better], beside)]
    seeds = {seed: [Arm("ours", [better]), *opponents, Arm("own", [worse])] for seed in range(3)}
    made = make_claims_table(seeds, ["ours", "own"])
    assert made.head[:5] == ["ours", "minus", "its price ÷ ours", "in-domain, points", "p, in-domain"]
    theirs, same, own, _ = made.rows
    assert theirs[:3] == ["ours", "theirs", "1.00"] and str(theirs[3]).startswith("75.0 ± ") and theirs[4] == "< 0.001"
    assert str(theirs[6]).startswith("50.0 ± ")
    assert same[3:5] == ["0.0 ± 4.6", "1.000"], "40 questions without a difference leave an error"
    assert own[:2] == ["own", "theirs"] and own[3] == "0.0 ± 4.6"


def test_an_arm_that_one_seed_lacks_is_no_claim_and_a_picture_shows_prices() -> None:
    seeds = {1: [Arm("ours", [COLD]), Arm("once", [COLD], {"minus Conductor": "ours"})], 2: [Arm("ours", [COLD])]}
    assert make_claims_table(seeds, ["ours"]).rows == []
    assert summarize_arms({1: [Arm("ours", [COLD]), Arm("theirs", [COLD])]}, claimed_names=["ours"]).picture.startswith(
        b"\x89PNG"
    )
