"""transformers and a vLLM server write the same texts for a policy.

`make test-local-llm` prepares what this needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ops.conductor.policy import Conductor, PolicyCard
from ops.conductor.vllm_conductor import ServedConductor
from ops.conductor.writer import load_conductor
from ops.config import ColdStart, Generation, Pool, PretrainedPolicy, Prompting, ScratchPolicy, Serve, Worker, load_pool
from ops.config.recipe import VLLM
from ops.core.errors import ConfigError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.local_models.vllm_server import serve_pool
from ops.synthetic.problems import generate_problems
from ops.training.cold_start.examples import SftExample
from ops.training.cold_start.sampling import WorkflowSampler, load_subtasks
from ops.training.cold_start.supervised import build_scratch_model, fine_tune
from ops.workflow.prompt import PromptTooLongError, build_conductor_messages
from tests.team.servers import free_port

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
SMOLLM = ROOT / ".podium" / "models" / "smollm2-135m"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not os.environ.get("PODIUM_LOCAL_LLM"), reason="needs vLLM and its model: run `make test-local-llm`"
    ),
]
Chat = list[dict[str, str]]
BENCHMARKS = ("math500", "mmlu", "rlpr", "livecodebench")
PROMPTING = Prompting(style="compact", few_shots="none")


class Written(NamedTuple):
    """The greedy texts of one policy by transformers and by a server, and the server's at temperature 1 with seeds 1, 1
    and 2."""

    transformers: list[str]
    greedy: list[str]
    drawn: list[list[str]]
    server: ServedConductor
    folder: Path

    @property
    def alike(self) -> int:
        """How many of the server's greedy texts are those of transformers."""
        return sum(mine == theirs for mine, theirs in zip(self.greedy, self.transformers, strict=True))


def problems(each: int) -> list[Problem]:
    return [problem for name in BENCHMARKS for problem in generate_problems(name, "test", each, 1)]


def taught(folder: Path, pool: Pool) -> None:
    """A scratch policy in float32 that has just learnt the grammar, and the format of no question."""
    subtasks = load_subtasks(ROOT / "data" / "cold_start" / "subtasks.yaml")
    sampler = WorkflowSampler(pool.names, [], subtasks, success_share=0.0, max_steps=5, seed=1)
    settings = ColdStart(steps=60, batch=16, learning_rate=2e-3)
    examples: list[SftExample] = [
        {
            "prompt": build_conductor_messages(problem, len(pool.names), PROMPTING, ()),
            "completion": [{"role": "assistant", "content": workflow.render()}],
        }
        for problem, workflow in islice(sampler.sample_endlessly(problems(40)), settings.steps * settings.batch)
    ]
    # Heads of 32: the narrowest that vLLM's attention for CPUs computes.
    model, tokenizer = build_scratch_model(ScratchPolicy(hidden=64, layers=2, heads=2, max_tokens=512), examples, 1)
    fine_tune(model, tokenizer, examples, settings, 1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def card(pool: Pool, **more: Any) -> PolicyCard:
    fields: dict[str, Any] = {"max_completion_tokens": 64} | more
    return PolicyCard(recipe="local", pool=pool, offered=pool.names, prompting=PROMPTING, **fields)


@contextmanager
def served(folder: Path, weights: Path, root: Path, **serve: Any) -> Iterator[str]:
    """The URL of a vLLM server of that policy, started as a pool's own models are."""
    url = f"http://127.0.0.1:{free_port()}"
    worker = Worker(
        name="policy", model=f"hosted_vllm/{folder.name}", api_base=f"{url}/v1",
        serve=Serve.model_validate({"model_path": str(weights), **serve}),
    )  # fmt: skip
    with serve_pool(Pool(name="policy", workers=(worker,)), Workspace(root)):
        yield url


@pytest.fixture(scope="module", autouse=True)
def _vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_VLLM_PYTHON", str(PYTHON))
        yield


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    pool, folder = load_pool(ROOT / "config", "quickstart"), tmp_path_factory.mktemp("scratch") / "local-abc"
    taught(folder, pool)
    card(pool, generation=Generation(repetition_penalty=1.05)).write(folder)
    chats = [list(map(dict, build_conductor_messages(each, len(pool.names), PROMPTING, ()))) for each in problems(16)]
    with closing(load_conductor(folder, Workspace(folder.parent), VLLM)) as server:
        assert isinstance(server, ServedConductor)
        assert server.write([]) == []
        mine, greedy = Conductor.load(folder).write(chats), server.write(chats)
        drawn = [server.write(chats, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
        yield Written(mine, greedy, drawn, server, folder)


def test_a_server_writes_the_texts_of_transformers_in_float32(
    scratch: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\nserver: {scratch.alike} of 64 greedy texts in float32 equal those of transformers")
    assert len(set(scratch.transformers)) >= 8, "equal texts say nothing where a policy writes one text for all"
    assert any(text.endswith("]") for text in scratch.transformers), "some end by themselves"
    assert scratch.alike >= 63, "of 64: the order of sums differs, and a tie may break otherwise"


def test_a_seed_fixes_the_draws_and_no_two_questions_share_them(scratch: Written) -> None:
    first, again, other = scratch.drawn
    assert first == again
    assert sum(mine != theirs for mine, theirs in zip(first, other, strict=True)) > 32
    assert sum(mine != theirs for mine, theirs in zip(first, scratch.greedy, strict=True)) > 32


def test_a_prompt_that_leaves_no_room_is_refused_before_it_is_sent(scratch: Written) -> None:
    with pytest.raises(PromptTooLongError) as caught:
        scratch.server.write([[{"role": "user", "content": "7"}], [{"role": "user", "content": "7" * 600}]])
    assert (caught.value.index, caught.value.limit) == (1, 512 - 64)


def test_a_server_of_another_model_is_refused_and_named(scratch: Written, tmp_path: Path) -> None:
    other = tmp_path / "local-other"
    other.mkdir()
    for file in scratch.folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    refusal = r"evaluation.writer.*serves local-abc, not policy local-other.*vllm serve"
    with pytest.raises(ConfigError, match=refusal):
        load_conductor(other, Workspace(tmp_path), scratch.server.url)
    assert load_conductor(other, Workspace(tmp_path), scratch.server.url, key="local-abc").card == scratch.server.card


def test_a_pretrained_policy_in_bfloat16_says_nearly_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SmolLM2, as a hub's model is: its weights lie elsewhere than its card."""
    folder = tmp_path / "local-def"
    folder.mkdir()
    pool = load_pool(ROOT / "config", "quickstart")
    card(pool, max_completion_tokens=32, pretrained=PretrainedPolicy(model=str(SMOLLM))).write(folder)
    chats: list[Chat] = [[{"role": "user", "content": problem.question}] for problem in problems(4)]
    mine = Conductor.load(folder).write(chats)
    short = {"max_model_len": 512, "args": ["--max-num-batched-tokens", "512"]}  # the length of its warm-up
    with served(folder, SMOLLM, tmp_path, dtype="bfloat16", **short) as url:
        theirs = load_conductor(folder, Workspace(tmp_path), url).write(chats)
    alike = sum(one == other for one, other in zip(mine, theirs, strict=True))
    with capsys.disabled():
        print(f"\nserver: {alike} of {len(chats)} greedy texts of SmolLM2 in bfloat16 equal those of transformers")
    # Eight bits of a logit make ties, which break by the order of sums; what follows them differs.
    assert len(set(mine)) > len(chats) / 2
    assert sum(one[:20] == other[:20] for one, other in zip(mine, theirs, strict=True)) > len(chats) / 2
