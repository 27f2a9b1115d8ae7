"""Greedy workflows of a policy made from scratch, of the quickstart's size, beside transformers' `generate_problems`;
and `podium ask`, beside the import of MLflow with its SQL store.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from ops.benchmarks.registry import training_benchmarks
from ops.conductor.policy import Conductor, PolicyCard, TextWriter
from ops.conductor.writer import load_in_process
from ops.config import ScratchPolicy, load_pool, load_recipe
from ops.core.messages import Message
from ops.core.workspace import Workspace
from ops.release import mlflow_store, registry
from ops.release.lineage import Lineage
from ops.synthetic.problems import generate_problems
from ops.training.cold_start.supervised import build_scratch_model
from ops.workflow.grammar import Workflow
from ops.workflow.prompt import build_conductor_messages
from tests.bench.row import Row, sized
from tests.command import PODIUM
from tests.releases import scored

TOKENS = 28
"""Tokens of a completion: the quickstart's workflows have 27 in the mean."""
QUESTIONS, ALONE, TURNS = 64, 12, sized(5, 1)
MLFLOW = "import mlflow, mlflow.store.tracking.sqlalchemy_store, mlflow.store.model_registry.sqlalchemy_store"


def rows() -> list[Row]:
    """Measure the CPU time of a question, alone and in a batch, with one thread; median of alternating turns."""
    with TemporaryDirectory() as folder:
        policy = _policy(Path(folder) / "policy")
        mine, reference = load_in_process(policy), Conductor.load(policy)
        prompts = _prompts()
        assert mine.complete(prompts[:8], max_tokens=TOKENS) == reference.complete(prompts[:8], max_tokens=TOKENS)
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with threadpool_limits(1, user_api="blas"):
                made = [_writing(1, mine, reference, prompts[:ALONE]), _writing(QUESTIONS, mine, reference, prompts)]
        finally:
            torch.set_num_threads(before)
        return [*made, _asking(Path(folder) / "checkout", policy)]


def _writing(size: int, mine: TextWriter, reference: TextWriter, prompts: Sequence[Sequence[Message]]) -> Row:
    taken: dict[TextWriter, list[float]] = {mine: [], reference: []}
    for _ in range(TURNS):
        for writer, times in taken.items():
            began = time.process_time()
            for start in range(0, len(prompts), size):
                writer.complete(prompts[start : start + size], max_tokens=TOKENS)
            times.append(1000 * (time.process_time() - began) / len(prompts))
    ours, theirs = (median(times) for times in taken.values())
    bound = {1: 0.4, QUESTIONS: 0.7}[size]
    return Row(f"a workflow, {size} at once", ours, "transformers' generate", theirs, bound, "CPU ms")


def _asking(root: Path, policy: Path) -> Row:
    """`podium ask` with an answer from the cache."""
    environment = {**os.environ, "PODIUM_ROOT": str(root)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    subprocess.run([*PODIUM, "init", str(root)], env=environment, check=True, capture_output=True, timeout=300)
    workspace = Workspace(root)
    pool = load_pool(workspace.config, "quickstart")
    lineage = Lineage("", "", "random", pool.answers_key, "", "quickstart")
    version = registry.register_version(workspace, policy, pool, scored(6), lineage).version
    with mlflow_store.connect(workspace) as client:
        client.set_registered_model_alias(mlflow_store.MODEL_NAME, mlflow_store.CHAMPION, version)
    ask, imports = [*PODIUM, "ask", "What is 6 * 7?"], [sys.executable, "-c", MLFLOW]
    taken = [[_cpu_s(command, environment) for command in (ask, imports)] for _ in range(1 + TURNS)][1:]
    ours, theirs = (median(times) for times in zip(*taken, strict=True))
    return Row("podium ask, from the cache", ours, "the import of MLflow and its SQL store", theirs, 2.2, "CPU s")


def _cpu_s(command: Sequence[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _policy(folder: Path) -> Path:
    """The quickstart's policy with random weights, whose completions never end by themselves."""
    config = Workspace.find().config
    recipe, pool = load_recipe(config, "quickstart"), load_pool(config, "quickstart")
    assert isinstance(recipe.policy, ScratchPolicy)
    completion = [{"role": "assistant", "content": Workflow.single(0).render()}]
    examples: Any = [{"prompt": prompt, "completion": completion} for prompt in _prompts()]
    model, tokenizer = build_scratch_model(recipe.policy, examples, 1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    PolicyCard(
        recipe=recipe.name, pool=pool, offered=pool.names, prompting=recipe.prompting,
        max_completion_tokens=recipe.grpo.max_completion_tokens,
    ).write(folder)  # fmt: skip
    return folder


def _prompts() -> list[list[Message]]:
    config = Workspace.find().config
    recipe, offered = load_recipe(config, "quickstart"), len(load_pool(config, "quickstart").names)
    names = training_benchmarks()
    problems = [each for name in names for each in generate_problems(name, "test", QUESTIONS // len(names), 1)]
    return [build_conductor_messages(problem, offered, recipe.prompting, ()) for problem in problems]


PARTS = (rows,)
"""The measurements of `make bench`."""
