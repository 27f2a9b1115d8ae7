"""Measure how well the notice on questions outside of the training tells them from others: `make scope`.

Of the champion that `make run` promoted. Each measure's threshold is set on one half of the in-domain test questions,
so that 95 % of them pass; the table is about the other half, the questions of the unseen benchmarks, and fifty open
questions that were written before any measure was chosen. The second table applies the measure to real rows (../shared)
as the training mix of a language model.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from ops.benchmarks.problem_files import raw_file, read_problems
from ops.benchmarks.registry import ood_benchmarks
from ops.conductor.chats import ChatCodec
from ops.conductor.decoder import Decoder, DecoderShape, Floats, Integers
from ops.conductor.policy import PolicyCard
from ops.config import load_recipe, load_serving
from ops.core.documents import MEASUREMENTS, format_markdown_table, replace_marked_text
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.release.champion import open_registered_versions
from ops.serving.loaded_version import LoadedVersion
from ops.serving.request_options import RequestOptions, make_problem
from ops.serving.scope import PASSING_SHARE, WORD_PATTERN, TrainingScope, hash_word_pairs, is_calibration_question
from tests.bench.real_data import ROWS, json_lines

MARK = "<!-- made by `make scope` -->"
HEAD = ("measure", "threshold", "in-domain test questions (an error)", "out of distribution", "open questions")
OPEN = Path(__file__).with_name("open_questions.txt")
IN_USE = "known pairs of neighbouring words, %"
Score = Callable[[Sequence[str]], NDArray[np.float64]]
"""Questions → how like the training mix each is; higher is more alike."""


class Groups(NamedTuple):
    """Questions by what a notice on them would be."""

    mix: list[str]
    calibrating: list[str]
    held_back: list[str]
    """The other half of the in-domain test questions, on which a notice is an error."""
    unseen: dict[str, list[str]]
    """Benchmark or family → its questions, on which a missing notice is an error; so are `open`'s."""
    open: list[str]

    @classmethod
    def of(cls, mix: list[str], tests: list[str], unseen: dict[str, list[str]]) -> Groups:
        halves = [q for q in tests if is_calibration_question(q)], [q for q in tests if not is_calibration_question(q)]
        return cls(mix, *halves, unseen, OPEN.read_text(encoding="utf-8").splitlines())


def of_the_champion(workspace: Workspace) -> Groups:
    """Return the questions of the quickstart that was run last."""
    recipe = load_recipe(workspace.config, "quickstart")
    mix = read_problems(workspace.data / "training_mix.jsonl")
    trained = dict.fromkeys(problem.benchmark for problem in mix)

    def tests(name: str) -> list[Problem]:
        return read_problems(raw_file(workspace, recipe, name, "test"))

    asked = [name for name in ood_benchmarks() if name in recipe.benchmarks]
    unseen = {f"{name}: {p.family}": list[str]() for name in asked for p in tests(name)}
    for name in asked:
        for problem in tests(name):
            unseen[f"{name}: {problem.family}"].append(problem.question)
    return Groups.of([p.question for p in mix], [p.question for name in trained for p in tests(name)], unseen)


def of_real_rows(folder: Path) -> Groups:
    """Return real rows: 240 of each domain as the training mix, others of the same sources as in-domain tests."""
    drawn = random.Random(0)

    def some(file: str, count: int) -> list[str]:
        rows = [str(row["question"]) for row in json_lines(folder / f"{file}.jsonl.gz")]
        return drawn.sample(rows, min(count, len(rows)))

    code = some("livecodebench_v1", 390)
    mix = [*some("math_train", 240), *some("mmlu_val", 240), *some("webinstruct_train", 240), *code[:240]]
    tests = [*some("math500", 150), *some("mmlu_test_part", 150), *some("webinstruct_test", 150), *code[240:]]
    unseen = {"BigCodeBench-Hard": some("bigcodebench_hard", 148), "GSM8K": some("gsm8k_test", 300)}
    return Groups.of(mix, tests, unseen)


# ── measures ─────────────────────────────────────────────────────────────────


def known_pairs(mix: Sequence[str]) -> Score:
    """The measure that is in use."""
    scope = TrainingScope(0.0, frozenset(pair for text in mix for pair in hash_word_pairs(text)))
    return lambda texts: np.array([scope.compute_known_share(text) for text in texts])


def _words(text: str) -> list[str]:
    return ["0" if word[0].isdigit() else word for word in WORD_PATTERN.findall(text.lower())]


def known_words(mix: Sequence[str]) -> Score:
    known = {word for text in mix for word in _words(text)}
    return lambda texts: np.array([np.mean([word in known for word in _words(text)]) for text in texts])


def nearest_jaccard(mix: Sequence[str]) -> Score:
    known = [frozenset(hash_word_pairs(text)) for text in mix]

    def score(texts: Sequence[str]) -> NDArray[np.float64]:
        asked = [frozenset(hash_word_pairs(text)) for text in texts]
        return np.array([max(len(a & b) / len(a | b) for b in known) for a in asked])

    return score


def nearest_tfidf(mix: Sequence[str]) -> Score:
    from sklearn.feature_extraction.text import TfidfVectorizer

    def plain(texts: Sequence[str]) -> list[str]:
        return [re.sub(r"\d+", "0", text.lower()) for text in texts]

    vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    known = vectors.fit_transform(plain(mix))
    return lambda texts: (vectors.transform(plain(texts)) @ known.T).max(axis=1).toarray().ravel()


def confidence(loaded: LoadedVersion, policy: Path) -> Score:
    """The policy's mean log-probability of the tokens of its greedy completion."""
    shape, chats = DecoderShape.read(policy), ChatCodec.load(policy)
    assert shape is not None  # the quickstart's policy is made from scratch
    decoder, longest = Decoder.load(policy, shape), PolicyCard.read(policy).max_completion_tokens

    def score(texts: Sequence[str]) -> NDArray[np.float64]:
        found: list[float] = []
        for start in range(0, len(texts), 64):
            problems = [make_problem(text, RequestOptions()) for text in texts[start : start + 64]]
            logs: list[list[float]] = [[] for _ in problems]

            def choose(logits: Floats, numbers: Integers, logs: list[list[float]] = logs) -> Integers:
                chosen: Integers = logits.argmax(axis=1)
                shifted = logits - logits.max(axis=1, keepdims=True)
                for number, value in zip(numbers.tolist(), -np.log(np.exp(shifted).sum(axis=1)), strict=True):
                    logs[number].append(float(value))
                return chosen

            prompts = chats.encode_prompts([loaded.team.build_messages(problem) for problem in problems], longest)
            written = decoder.generate(prompts, longest, chats.end_tokens, choose)
            found += [float(np.mean(log[: len(tokens)])) for log, tokens in zip(logs, written, strict=True)]
        return np.array(found)

    return score


# ── tables ───────────────────────────────────────────────────────────────────


def line(name: str, score: Score, groups: Groups) -> tuple[str, ...]:
    """Return a measure's row: its threshold, and the share of each group that gets the notice."""
    shares = np.sort(score(groups.calibrating))
    least = shares[int((1 - PASSING_SHARE) * len(shares))]
    unseen = [text for texts in groups.unseen.values() for text in texts]
    cells = (_noticed(score(texts) < least) for texts in (groups.held_back, unseen, groups.open))
    return (name, f"{least:.2f}", *cells)


def _noticed(flags: NDArray[np.bool_]) -> str:
    low, high = binomtest(int(flags.sum()), len(flags)).proportion_ci(method="wilson")
    return f"{int(flags.sum())} of {len(flags)}: {100 * flags.mean():.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def main() -> int:
    """Measure, and write the tables. Returns the exit status."""
    workspace = Workspace.find()
    with open_registered_versions(workspace) as champion:
        files = champion.fetch_files(champion.find_current() or "")
        loaded = LoadedVersion.load(files, load_serving(workspace.config), workspace)
        groups = of_the_champion(workspace)
        made = [
            line(IN_USE, known_pairs(groups.mix), groups),
            line("known words, %", known_words(groups.mix), groups),
            line("Jaccard similarity of word pairs to the nearest question", nearest_jaccard(groups.mix), groups),
            line("TF-IDF similarity of characters to the nearest question", nearest_tfidf(groups.mix), groups),
            line("mean log-probability of the policy's greedy completion", confidence(loaded, files.policy), groups),
        ]
    parts = [f"Version {loaded.version}, recipe `quickstart`. In brackets the 95 % interval (Wilson)."]
    parts.append(format_markdown_table(HEAD, made))
    if loaded.scope is None:
        parts.append("This version has no measure, because its test questions are too few.")
    else:
        kinds = {"in-domain": groups.held_back, **groups.unseen, "open questions": groups.open}
        families = [
            (name, len(texts), sum(bool(loaded.scope.write_notice(text)) for text in texts))
            for name, texts in kinds.items()
        ]
        parts.append("The measure that is stored with the version, by family:")
        parts.append(format_markdown_table(("questions", "n", "with the notice"), families))
    folder = workspace.root / ROWS
    if folder.is_dir():
        real = of_real_rows(folder)
        rows = [
            line(IN_USE, known_pairs(real.mix), real),
            line("TF-IDF similarity of characters to the nearest question", nearest_tfidf(real.mix), real),
        ]
        parts.append(
            "The same on real rows: 960 of MATH, MMLU, WebInstruct and LiveCodeBench as the training mix; out of "
            "distribution are BigCodeBench-Hard and GSM8K."
        )
        parts.append(format_markdown_table(HEAD, rows))
    text = "\n\n".join(parts)
    replace_marked_text(workspace.root / MEASUREMENTS, MARK, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
