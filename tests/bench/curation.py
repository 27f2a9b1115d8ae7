"""Curation of 150,000 candidates against 25,000 evaluation questions to the mix of 960, beside half of both,
beside datasketch's own MinHash of the same texts, and beside the texts' own memory.

The rows are the real ones where they lie beside the project, and generated ones otherwise, replicated with
other numbers and some other words until there are enough. Each size runs in a process of its own, so that its
peak memory is its own: `python -m tests.bench.curation CANDIDATES`.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
from datasketch import MinHash

from ops.config import Curation
from ops.core.problem import Problem
from ops.curation.selection import choose_mix, choose_shortlist
from ops.curation.selector import SelectionEvidence
from tests.bench.real_data import RowsFile, problems_of
from tests.bench.row import Row, measured_alone, sized

CANDIDATES, HELD_OUT = sized(150_000, 4_000), sized(25_000, 500)
OTHER_WORDS = 0.15
"""Share of the words of a copy that are replaced."""
TRAIN = (
    RowsFile("math_train", "math500", "math", "math"),
    RowsFile("mmlu_val", "mmlu", "mmlu", "choice"),
    RowsFile("webinstruct_train", "rlpr", "rlpr", "text"),
    RowsFile("livecodebench_v1", "livecodebench", "code", "code"),
)
TEST = (
    RowsFile("math500", "math500", "math", "math"),
    RowsFile("mmlu_test_part", "mmlu", "mmlu", "choice"),
    RowsFile("webinstruct_test", "rlpr", "rlpr", "text"),
    RowsFile("bigcodebench_hard", "bigcodebench", "code", "code"),
)


def rows() -> list[Row]:
    """Measure CPU seconds, so that other work on the machine does not count."""
    whole, half = (measured_alone("tests.bench.curation", size, 240) for size in (CANDIDATES, CANDIDATES // 2))
    name = f"curation of {CANDIDATES:,} to 960"
    return [
        Row(name, whole["cpu"], "half of it", half["cpu"], 2.2, "CPU s"),
        Row(name, whole["cpu"], "datasketch's MinHash of the texts", whole["minhash_cpu"], 2.5, "CPU s"),
        Row(f"{name}: peak memory", whole["gib"], "half of it", half["gib"], 2.2, "GiB"),
    ]


def main(candidates: int) -> None:
    """Measure one size and print the result as JSON."""
    empty_gib = psutil.Process().memory_info().rss / 2**30
    held_out = list(_copies(problems_of(TEST, "test", 2000, 1), HELD_OUT * candidates // CANDIDATES, seed=1))
    offered = list(_copies(problems_of(TRAIN, "train", 2000, 1), candidates, seed=2))
    settings = Curation(selector="proxy", shortlist_factor=2)
    started = time.process_time()
    selection = choose_shortlist(offered, {"all": held_out}, settings, seed=0)
    mix = choose_mix(selection.problems, SelectionEvidence(settings, 0, {}))
    cpu = time.process_time() - started
    peak = peak_gib()
    counts = {"candidates": len(offered), "held_out": len(held_out), "kept": selection.report["kept"], "mix": len(mix)}
    memory = {"gib": peak - empty_gib}
    print(json.dumps({**counts, "cpu": cpu, **memory, "minhash_cpu": _minhash_cpu_s(held_out + offered)}))


def peak_gib() -> float:
    """Return the peak memory of this process; `getrusage` would include the memory of the starting process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def _minhash_cpu_s(problems: list[Problem]) -> float:
    """Return CPU seconds of datasketch's sketches (128 permutations) of word 5-grams, measured on every tenth text."""
    started, every = time.process_time(), 10
    for problem in problems[::every]:
        words = problem.question.lower().split()
        grams = {" ".join(words[i : i + 5]).encode() for i in range(max(1, len(words) - 4))}
        MinHash(num_perm=128).update_batch(grams)
    return (time.process_time() - started) * every


def _copies(problems: list[Problem], count: int, seed: int) -> Iterator[Problem]:
    """Return the problems, and copies of them with other numbers and some other words, until there are `count`."""
    words = sorted({word for problem in problems for word in problem.question.split() if word.isalpha()})
    for number in range(count):
        copy, place = divmod(number, len(problems))
        problem = problems[place]
        if copy:
            chance = random.Random(f"{seed}:{number}")
            name, question = f"{problem.id}-copy{copy}", _perturbed(problem.question, chance, words)
            problem = replace(problem, id=name, question=question)
        yield problem


def _perturbed(question: str, chance: random.Random, words: list[str]) -> str:
    other = (chance.choice(words) if w.isalpha() and chance.random() < OTHER_WORDS else w for w in question.split(" "))
    return re.sub(r"\d+", lambda digits: str(int(digits[0][:6]) + chance.randrange(1, 9)), " ".join(other))


PARTS = (rows,)
"""The measurements of `make bench`."""


if __name__ == "__main__":
    main(int(sys.argv[1]))
