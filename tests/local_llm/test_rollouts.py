"""vLLM writes the rollouts of GRPO on a CPU: after each update its server reads the policy's weights from disk.

TRL sends weights to a server over NCCL, which needs GPUs. Here a client writes them to the folder from which the server
was started, and calls vLLM's own `reload_weights`. The rest is what the recipe `paper-server` runs: Podium's trainer,
TRL's generation by a server, its correction.

vLLM 0.32 on a CPU keeps the first output matrix of a model that shares it with its embeddings, so the server is started
with a matrix of its own. `make test-local-llm` prepares what this needs.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback
from trl.generation import vllm_client, vllm_generation

from ops.benchmarks.problem_files import read_problems
from ops.conductor.policy import PolicyCard, load_model
from ops.config import ColdStart, PretrainedPolicy
from ops.training.cold_start.examples import SftExample
from ops.training.cold_start.supervised import fine_tune
from ops.training.grpo.trainer import run_training
from ops.training.run.training_run import CURVE_FILE, RunPlan
from ops.workflow.grammar import Workflow
from ops.workflow.prompt import build_conductor_messages
from tests.local_llm import test_writers
from tests.local_llm.test_writers import PYTHON, SMOLLM, served
from tests.unit.training.tiny import tiny_plan

pytestmark = test_writers.pytestmark
STEPS, LESSONS = 4, 6
OWN_OUTPUT = ("--hf-overrides", '{"tie_word_embeddings": false}')
ANSWERS = ("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1")
"""How TRL wants a server's log-probabilities."""
DIFFERENCE = "sampling/sampling_logp_difference/mean"
"""TRL's mean of |log-probability by vLLM - by the trainer| over the sampled tokens, in nats."""


def write_weights(folder: Path, named: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Write the weights of a model with shared embeddings, the output matrix twice."""
    weights = {name: tensor.detach().contiguous() for name, tensor in named}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, folder / "part", metadata={"format": "pt"})
    (folder / "part").replace(folder / "model.safetensors")


class FromDisk(vllm_client.VLLMClient):  # type: ignore[misc]
    """TRL's client, for a server that reads weights from a folder."""

    folder: Path
    reloads = True

    def init_communicator(self, device: Any = 0) -> None:
        """Join no group: nothing is sent."""

    def update_named_params(self, metadata: Any, named_params: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Write the weights, and let the server read them."""
        write_weights(self.folder, named_params)
        if self.reloads:
            self._post(f"{self.base_url}/collective_rpc", json={"method": "reload_weights"})


class Logged(TrainerCallback):  # type: ignore[misc]
    """What TRL logs of each step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and DIFFERENCE in logs:
            self.steps.append(logs)


class Trained(NamedTuple):
    """A training whose rollouts vLLM wrote: what TRL and Podium logged of each step."""

    logged: list[dict[str, float]]
    curve: list[dict[str, Any]]

    @property
    def differences(self) -> list[float]:
        return [logs[DIFFERENCE] for logs in self.logged]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 in float32, which has nearly learnt one workflow by heart, without a card."""
    plan, _ = tiny_plan(tmp_path_factory.mktemp("taught"))
    card = PolicyCard.read(plan.base_policy)
    model, tokenizer = load_model(
        plan.base_policy, card.model_copy(update={"pretrained": PretrainedPolicy(model=str(SMOLLM), dtype="float32")})
    )
    completion = [{"role": "assistant", "content": Workflow.single(card.offered.index("guesser")).render()}]
    examples: list[SftExample] = [
        {"prompt": build_conductor_messages(each, len(card.offered), card.prompting, ()), "completion": completion}
        for each in read_problems(plan.problems)
    ]
    fine_tune(model.float(), tokenizer, examples * LESSONS, ColdStart(steps=LESSONS, batch=8, learning_rate=1e-4), 1)
    folder = plan.root / "smollm2"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained(taught: Path, root: Path, *, reloads: bool) -> Trained:
    """Train on rollouts of a server that reads the weights after each update; without `reloads` it keeps the first."""
    root.mkdir()
    # The entropy bonus changes the weights in every step, also where all rewards are equal.
    server = {"vllm": True, "vllm_mode": "server", "vllm_server_url": "http://127.0.0.1:1"}
    plan, folder = tiny_plan(root, steps=STEPS, checkpoint_every=STEPS, learning_rate=1e-4, entropy=0.02, **server)
    card = PolicyCard.read(plan.base_policy)
    shutil.rmtree(plan.base_policy)
    shutil.copytree(taught, plan.base_policy)
    card.write(plan.base_policy)
    weights, logged = root / "served", Logged()
    shutil.copytree(taught, weights)
    write_weights(weights, load_file(weights / "model.safetensors").items())
    short = {"max_model_len": 512, "args": ["--max-num-batched-tokens", "512", *ANSWERS, *OWN_OUTPUT]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_VLLM_PYTHON", str(PYTHON))
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")  # else the server does not offer `collective_rpc`
        patch.setattr(FromDisk, "folder", weights, raising=False)
        patch.setattr(FromDisk, "reloads", reloads)
        for module in (vllm_client, vllm_generation):  # vLLM is in an environment of its own, and only its server runs
            patch.setattr(module, "is_vllm_available", lambda *_, **__: True)
        patch.setattr(vllm_generation, "VLLMClient", FromDisk)
        with served(weights, weights, root, dtype="float32", **short) as url:
            run_training(_at(plan, url), folder, lambda *_: None, [logged])
    lines = (folder / CURVE_FILE).read_text(encoding="utf-8").splitlines()
    return Trained(logged.steps, [json.loads(line) for line in lines])


def _at(plan: RunPlan, url: str) -> RunPlan:
    grpo = plan.recipe.grpo.model_copy(update={"vllm_server_url": url})
    return plan.model_copy(update={"recipe": plan.recipe.model_copy(update={"grpo": grpo})})


@pytest.fixture(scope="module")
def fresh(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(taught, tmp_path_factory.mktemp("fresh") / "run", reloads=True)


def test_every_step_was_written_by_vllm_and_rewarded(fresh: Trained) -> None:
    assert [row["step"] for row in fresh.curve] == list(range(1, STEPS + 1))
    assert all(row["rollouts"] == 8 and math.isfinite(row["loss"]) for row in fresh.curve)
    assert sum(row["reward"] for row in fresh.curve) > 0


def test_vllm_has_the_trainers_weights_after_each_update(
    fresh: Trained, taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = trained(taught, tmp_path / "run", reloads=False)
    with capsys.disabled():
        print(f"\n|log-probability by vLLM - by the trainer|, by step: {fresh.differences}")
        print(f"the same if the server keeps its first weights: {stale.differences}")
    assert len(fresh.differences) == len(stale.differences) == STEPS
    assert max(fresh.differences) < 0.001, "the order of sums differs"
    assert min(stale.differences[1:]) > 10 * max(fresh.differences)
