"""The cold start of a pretrained model: all weights or low-rank updates, and the gate before GRPO; a policy keeps the
precision of its recipe when it is made, in GRPO, and when it is loaded for use.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ops.benchmarks.problem_files import read_problems, write_problems
from ops.conductor.policy import Conductor, PolicyCard, locate_model
from ops.config import ColdStart, Lora, PretrainedPolicy, Recipe, Setup, Validation
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.synthetic.problems import generate_problems
from ops.training.cold_start import examples
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.cold_start.tokenizer import train_tokenizer
from ops.training.cold_start.validation import (
    ColdStartRecord,
    TooFewValidWorkflows,
    assess_cold_start,
    check_cold_start,
    held_out_problems,
    validation_problems,
)
from ops.training.grpo import __main__ as grpo
from ops.training.run.training_run import RunPlan, RunResult, write_run_plan
from ops.workflow.grammar import Workflow, parse_workflow
from tests.builders import make_response
from tests.unit.training.plans import POOL, QUICK, ROOT, write_mix
from tests.unit.training.tiny import GRPO, as_llama, freeze_objects, tiny_plan, train, weights_of

pytestmark = pytest.mark.slow
SETTINGS = ColdStart(
    steps=40, batch=8, micro_batch=4, learning_rate=1e-2, success_share=1.0, validation=Validation(problems=8)
)
PROBLEMS = generate_problems("math500", "train", 40, 1)
Make = Callable[..., Setup]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Llama of a few thousand random weights with shared keys, and a tokenizer."""
    folder = tmp_path_factory.mktemp("pretrained")
    texts = [problem.question for problem in PROBLEMS]
    tokenizer = train_tokenizer([*texts, Workflow.single(1).render(), "Models: 0 1 2 3 4 5 6 7 8"], 400)
    tokenizer.save_pretrained(folder)
    as_llama(folder)
    return folder


@pytest.fixture
def make(tmp_path: Path, pretrained: Path) -> Make:
    """Make a workspace with a mix and responses, in which one worker is always right."""
    freeze_objects()
    workspace = Workspace(tmp_path)
    rows = [
        make_response(worker=worker, benchmark=each.benchmark, problem_id=each.id, text="Answer: 1", score=score)
        for worker, score in zip(POOL.names, (1.0, 0.0), strict=False)
        for each in PROBLEMS
    ]
    write_mix(workspace, PROBLEMS, rows)

    def setup(dtype: str = "float32", **cold_start: Any) -> Setup:
        """Return the setup of a policy of that type with other settings of the cold start."""
        values = QUICK.model_dump() | {
            "name": "tiny", "policy": {"kind": "pretrained", "model": str(pretrained), "dtype": dtype},
            "cold_start": SETTINGS.model_copy(update=cold_start), "grpo": GRPO,
            "prompting": QUICK.prompting.model_copy(update={"max_steps": 1}),
        }  # fmt: skip
        return Setup(workspace, Recipe.model_validate(values), POOL)

    return setup


def taught(setup: Setup) -> Path:
    return make_base_policy(setup, client=None)  # type: ignore[arg-type]


def record_of(folder: Path) -> tuple[ColdStartRecord, Any]:
    """Return the record of a cold start and that of its validation."""
    record = ColdStartRecord.read(folder)
    assert record is not None and record.validation is not None
    return record, record.validation


def judged(folder: Path, setup: Setup) -> Any:
    assert setup.recipe.cold_start is not None
    return assess_cold_start(folder, setup.recipe.cold_start)


@pytest.mark.parametrize(
    ("lora", "dtype"),
    [(None, "float32"), pytest.param(Lora(rank=8, alpha=32), "bfloat16", marks=pytest.mark.long)],
)
def test_a_pretrained_model_learns_to_write_workflows_and_to_end_them(
    make: Make, pretrained: Path, lora: Lora | None, dtype: str
) -> None:
    setup = make(lora=lora, dtype=dtype)
    folder = taught(setup)
    record, validation = record_of(folder)
    assert record.loss[-1] < record.loss[0] / (2 if lora is None else 1.2)
    assert record.examples == 320 and record.tokens > 320 * 20 and record.seconds > 0 and record.peak_gib > 0.1
    before, after = weights_of(pretrained), weights_of(folder)
    assert after.keys() == before.keys()  # a plain model after either kind of training
    assert {tensor.dtype for tensor in after.values()} == {getattr(torch, dtype)}
    changed = {name for name in before if not torch.equal(before[name].to(after[name].dtype), after[name])}
    assert changed == {name for name in before if lora is None or "proj" in name}
    if lora is None:
        assert validation.share >= 0.95
        card = PolicyCard.read(folder)
        team = card.build_team(setup.pool, ROOT / "data", setup.recipe.execution)
        said = Conductor.load(folder).complete([team.build_messages(generate_problems("math500", "test", 1, 1)[0])])
        assert said[0].is_ended and parse_workflow(said[0].text, offered=9, max_steps=1).workflow


def test_micro_batches_teach_what_whole_batches_teach(make: Make) -> None:
    short = {"steps": 2, "learning_rate": 1e-3}
    first = taught(make(**short))
    weights = weights_of(first)
    shutil.rmtree(first)
    assert taught(make(**short, micro_batch=None)) == first  # the same policy
    torch.testing.assert_close(weights_of(first), weights, rtol=1e-3, atol=1e-4)


def test_damaged_weights_and_a_folder_in_the_way_are_renamed_and_the_policy_is_made_again(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    folder = base_policy_folder(setup := make(steps=1))
    folder.mkdir(parents=True)
    assert taught(setup) == folder
    weights = {name: tensor.clone() for name, tensor in weights_of(folder).items()}  # they are mapped from the file
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 100] = bytes(byte ^ 255 for byte in content[middle : middle + 100])
    file.write_bytes(content)
    assert taught(setup) == folder
    torch.testing.assert_close(weights_of(folder), weights, rtol=1e-3, atol=1e-4)
    assert len(list(folder.parent.glob(f"{folder.name}.damaged-*"))) == 2
    assert "its file model.safetensors has another SHA-256" in caplog.text


def test_settings_without_effect_on_a_policy_keep_its_key(make: Make) -> None:
    def folder(**cold_start: Any) -> Path:
        return base_policy_folder(make(**{"micro_batch": None, "validation": None} | cold_start))

    checked = folder(validation=Validation(problems=8))
    assert folder(micro_batch=4) == folder()
    assert folder(validation=Validation(problems=8, least_valid=0.1)) == checked
    assert len({folder(), checked, folder(lora=Lora())}) == 3  # the cold start excludes the eight problems


def test_validation_problems_are_not_in_the_examples(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: set[str] = set()
    sample = examples.sample_examples

    async def sampled(*args: Any, **kwargs: Any) -> Any:
        made = await sample(*args, **kwargs)
        prompts.update(example["prompt"][-1]["content"] for example in made)
        return made

    monkeypatch.setattr(examples, "sample_examples", sampled)
    setup = make(batch=4)
    folder = taught(setup)
    unseen = held_out_problems(setup.workspace.data / "training_mix.jsonl", setup.recipe)
    team = PolicyCard.read(folder).build_team(setup.pool, ROOT / "data", setup.recipe.execution)
    assert len(unseen) == 8
    assert not prompts & {team.build_messages(problem)[-1]["content"] for problem in unseen}
    assert len(prompts) > 8


def test_below_the_share_grpo_is_refused_with_the_reasons_and_no_step_is_done(make: Make) -> None:
    setup = make(steps=1)
    folder = taught(setup)
    found = judged(folder, setup)
    assert not found.passed and found.validity is not None
    assert found.validity.share < 0.95
    assert found.validity.valid + sum(found.validity.failures.values()) == 8
    run = write_run_plan(setup, folder)
    with pytest.raises(
        TooFewValidWorkflows, match=r"of 8 completions are workflows .*GRPO starts from 95%.*cold_start\.steps"
    ):
        grpo.train_run(run)
    assert RunResult.read(run) is None and not (run / "checkpoints").exists()
    lower = make(steps=1, validation=Validation(problems=8, least_valid=0.0))
    assert taught(lower) == folder  # no cold start is repeated
    check_cold_start(folder, lower.recipe.cold_start)


def test_without_a_validation_section_half_of_the_completions_must_be_workflows(make: Make) -> None:
    """The share is measured on problems of the mix without holding
    any out: the policy is the same as without a threshold.
    """
    setup = make(steps=1, validation=None)
    folder = taught(setup)
    found = judged(folder, setup)
    assert not found.passed and found.validity is not None
    assert (found.validity.problems, "GRPO starts from 50%" in found.said) == (40, True)
    lower = make(steps=1, validation=None, least_valid=0.0)
    assert base_policy_folder(lower) == folder
    assert judged(folder, lower).passed
    write_problems(setup.workspace.data / "shortlist.jsonl", generate_problems("math500", "train", 43, 1))
    assert len(validation_problems(setup.workspace.data, setup.recipe)) == 3, (
        "what the mix left out, where there is some"
    )


def test_drawn_in_another_way_the_same_policy_is_validated_again(make: Make) -> None:
    setup = make(steps=1)
    folder = taught(setup)
    before, validation = record_of(folder)
    colder = setup.recipe.grpo.model_copy(update={"temperature": 0.5})
    other = replace(setup, recipe=setup.recipe.model_copy(update={"grpo": colder}))
    assert taught(other) == folder
    after, again = record_of(folder)
    assert [each.drawn["temperature"] for each in (validation, again)] == [1.0, 0.5]
    assert after.model_copy(update={"validation": validation}) == before
    written = (folder / "cold_start.json").stat().st_mtime_ns
    taught(other)
    assert (folder / "cold_start.json").stat().st_mtime_ns == written


def test_cut_off_completions_name_the_limit_as_the_remedy(tmp_path: Path) -> None:
    counts = {"problems": 10, "valid": 4, "failures": {"cut_off": 5, "unbalanced": 1}}
    (tmp_path / "cold_start.json").write_text(json.dumps({"loss": [1.0], "validation": counts}), encoding="utf-8")
    with pytest.raises(
        TooFewValidWorkflows, match=r"40\.0%.*cut_off 5, unbalanced 1.*Raise grpo\.max_completion_tokens"
    ):
        check_cold_start(tmp_path, SETTINGS)
    unasked = SETTINGS.model_copy(update={"validation": None})
    with pytest.raises(TooFewValidWorkflows, match=r"40\.0%.*GRPO starts from 50%.*lower cold_start\.least_valid"):
        check_cold_start(tmp_path, unasked)
    check_cold_start(tmp_path, unasked.model_copy(update={"least_valid": 0.4}))
    check_cold_start(tmp_path, unasked.model_copy(update={"least_valid": 0.0}))
    (tmp_path / "cold_start.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="is not the record of a cold start"):
        check_cold_start(tmp_path, SETTINGS)


def test_holding_out_the_whole_mix_is_refused(make: Make) -> None:
    with pytest.raises(DataError, match="holds 40 problems, of which 40 are held out"):
        taught(make(validation=Validation(problems=40)))


def test_settings_that_cannot_be_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="batch = 8 is not a multiple of micro_batch = 3"):
        ColdStart(batch=8, micro_batch=3)
    values = make().recipe.model_dump() | {"policy": {"kind": "scratch"}, "cold_start": {"lora": {}}}
    with pytest.raises(ValueError, match=r"cold_start\.lora needs pretrained weights"):
        Recipe.model_validate(values)


def test_a_package_that_is_not_installed_is_named_with_its_remedy() -> None:
    assert locate_model(PretrainedPolicy(model="Qwen/Qwen2.5-7B")) == "Qwen/Qwen2.5-7B"
    with pytest.raises(DataError, match="--no-deps no_such_package"):
        locate_model(PretrainedPolicy(model="package:no_such_package"))


def types(policy: Conductor) -> set[torch.dtype]:
    return {parameter.dtype for parameter in policy._model.parameters()}


def policy_of(plan: RunPlan, cold_start: ColdStart | None = None) -> Path:
    """Make the base policy of the plan's recipe from its pretrained model."""
    workspace = Workspace(plan.root)
    write_mix(workspace, read_problems(plan.problems))
    recipe = Recipe.model_validate(plan.recipe.model_dump() | {"cold_start": cold_start})
    return taught(Setup(workspace, recipe, plan.pool))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> RunPlan:
    return tiny_plan(tmp_path_factory.mktemp("bfloat16"), dtype="bfloat16")[0]


@pytest.fixture(scope="module")
def trained(plan: RunPlan) -> Path:
    folder = plan.root / "run"
    train(plan.model_copy(update={"base_policy": policy_of(plan)}), folder)
    return folder


def test_trained_in_bfloat16_it_is_used_in_bfloat16(trained: Path) -> None:
    assert PolicyCard.read(trained / "policy").dtype == "bfloat16"
    assert {tensor.dtype for tensor in weights_of(trained / "policy").values()} == {torch.bfloat16}
    policy = Conductor.load(trained / "policy")
    assert types(policy) == {torch.bfloat16}
    assert len(policy.write([[{"role": "user", "content": "What is 1 + 1?"}]])) == 1


def test_steps_too_small_for_bfloat16_are_not_lost_on_the_way(plan: RunPlan, trained: Path) -> None:
    before, after = weights_of(plan.base_policy), weights_of(trained / "checkpoints" / "checkpoint-2")
    moved = {name: (after[name].float() != before[name].float()).float().mean() for name in before}
    assert all(share > 0.5 for name, share in moved.items() if "proj.weight" in name)


def test_the_card_rules_over_the_type_of_the_file(trained: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(trained / "policy", policy)
    PolicyCard.read(policy).model_copy(update={"dtype": "float32"}).write(policy)
    assert types(Conductor.load(policy)) == {torch.float32}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cold_start_keeps_the_precision(plan: RunPlan, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    example = {
        "prompt": [{"role": "user", "content": "What is 1 + 1?"}],
        "completion": [{"role": "assistant", "content": "model_id = [0]"}],
    }

    async def sampled(*_: Any, **__: Any) -> list[Any]:
        return [example] * 4

    monkeypatch.setattr(examples, "sample_examples", sampled)
    recipe = plan.recipe.model_copy(update={"policy": plan.recipe.policy.model_copy(update={"dtype": dtype})})
    folder = policy_of(plan.model_copy(update={"recipe": recipe}), ColdStart(steps=2, batch=2))
    assert types(Conductor.load(folder)) == {getattr(torch, dtype)}
