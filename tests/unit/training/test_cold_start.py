"""The cold start of a pretrained model: all weights or low-rank updates, and the gate before GRPO."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ops.benchmarks.store import write_problems
from ops.conductor.policy import Conductor, PolicyCard
from ops.config import ColdStart, Lora, PretrainedPolicy, Recipe, Setup, Validation, load_pool, load_recipe
from ops.core.errors import DataError
from ops.core.response import Response
from ops.core.rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.precaching.precache import write_responses
from ops.synthetic.problems import generate
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.cold_start.tokenizer import train_tokenizer
from ops.training.cold_start.validation import ColdStartRecord, NotTaught, check_taught, held_out, validated_on, verdict
from ops.training.grpo import __main__ as grpo
from ops.training.run.plan import RunResult, write_run
from ops.workflow.grammar import Workflow, parse
from tests.unit.training.tiny import GRPO, ROOT, as_llama, freeze_objects

pytestmark = pytest.mark.slow
SETTINGS = ColdStart(
    steps=40, batch=8, micro_batch=4, learning_rate=1e-2, success_share=1.0, validation=Validation(problems=8)
)
SUBTASKS = "- {say: Solve the problem., about: answer}\n"
Make = Callable[..., Setup]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Llama of a few thousand random weights with shared keys, and a tokenizer."""
    folder = tmp_path_factory.mktemp("pretrained")
    texts = [problem.question for problem in generate("math500", "train", 40, 1)]
    tokenizer = train_tokenizer([*texts, Workflow.single(1).render(), "Models: 0 1 2 3 4 5 6 7 8"], 400)
    tokenizer.save_pretrained(folder)
    as_llama(folder)
    return folder


@pytest.fixture
def make(tmp_path: Path, pretrained: Path) -> Make:
    """Make a workspace with a mix and responses, in which one worker is always right."""
    freeze_objects()
    quick = load_recipe(ROOT / "config", "quickstart")
    pool = load_pool(ROOT / "config", quick.pool)
    workspace = Workspace(tmp_path)
    problems = generate("math500", "train", 40, 1)
    write_problems(workspace.data / "training_mix.jsonl", problems)
    (workspace.data / "cold_start").mkdir()
    (workspace.data / "cold_start" / "subtasks.yaml").write_text(SUBTASKS, encoding="utf-8")
    said = Response("Answer: 1", 1, 1, 0.0, 0.0, "stop")
    for worker in pool.names[:2]:
        rows = [
            ResponseRow(worker, each.benchmark, each.id, 0, "ok", said, float(worker == pool.names[0]))
            for each in problems
        ]
        write_responses(rows, response_file(workspace.data / "responses", worker, "math500"))

    def setup(cold_start: ColdStart | None = SETTINGS, **policy: Any) -> Setup:
        described = {"kind": "pretrained", "model": str(pretrained), "dtype": "float32"} | policy
        values = quick.model_dump() | {
            "name": "tiny", "policy": described, "cold_start": cold_start, "grpo": GRPO,
            "prompting": quick.prompting.model_copy(update={"max_steps": 1}),
        }  # fmt: skip
        return Setup(workspace, Recipe.model_validate(values), pool)

    return setup


def taught(setup: Setup) -> Path:
    return make_base_policy(setup, client=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lora", "dtype"),
    [(None, "float32"), pytest.param(Lora(rank=8, alpha=32), "bfloat16", marks=pytest.mark.long)],
)
def test_a_pretrained_model_learns_to_write_workflows_and_to_end_them(
    make: Make, pretrained: Path, lora: Lora | None, dtype: str
) -> None:
    setup = make(SETTINGS.model_copy(update={"lora": lora}), dtype=dtype)
    folder = taught(setup)
    record = ColdStartRecord.read(folder)
    assert record is not None and record.validation is not None
    assert record.loss[-1] < record.loss[0] / (2 if lora is None else 1.2)
    assert record.examples == 320 and record.tokens > 320 * 20 and record.seconds > 0 and record.peak_gib > 0.1
    before, after = load_file(pretrained / "model.safetensors"), load_file(folder / "model.safetensors")
    assert after.keys() == before.keys()  # a plain model after either kind of training
    assert {tensor.dtype for tensor in after.values()} == {getattr(torch, dtype)}
    changed = {name for name in before if not torch.equal(before[name].to(after[name].dtype), after[name])}
    assert changed == {name for name in before if lora is None or "proj" in name}
    if lora is None:
        assert record.validation.share >= 0.95
        card = PolicyCard.read(folder)
        team = card.team(setup.pool, ROOT / "data", setup.recipe.execution)
        said = Conductor.load(folder).complete([team.messages(generate("math500", "test", 1, 1)[0])])
        assert said[0].ended and parse(said[0].text, offered=9, max_steps=1).workflow


def test_micro_batches_teach_what_whole_batches_teach(make: Make) -> None:
    short = SETTINGS.model_copy(update={"steps": 2, "learning_rate": 1e-3})
    first = taught(make(short))
    weights = load_file(first / "model.safetensors")
    shutil.rmtree(first)
    whole = make(short.model_copy(update={"micro_batch": None}))
    assert base_policy_folder(whole) == first  # the same policy
    for name, tensor in load_file(taught(whole) / "model.safetensors").items():
        torch.testing.assert_close(tensor, weights[name], rtol=1e-3, atol=1e-4)


def test_a_folder_in_the_way_is_refused_before_anything_is_made(make: Make) -> None:
    folder = base_policy_folder(setup := make())
    folder.mkdir(parents=True)
    with pytest.raises(DataError, match=r"is in the way of one.*Remove it"):
        taught(setup)
    assert list(folder.parent.iterdir()) == [folder]


def test_settings_without_effect_on_a_policy_keep_its_key(make: Make) -> None:
    plain = ColdStart(steps=2)
    one = base_policy_folder(make(plain))
    assert base_policy_folder(make(plain.model_copy(update={"micro_batch": 4}))) == one
    checked = plain.model_copy(update={"validation": Validation(problems=8)})
    assert base_policy_folder(make(checked)) != one  # the cold start excludes these eight problems
    lower = checked.model_copy(update={"validation": Validation(problems=8, least_valid=0.1)})
    assert base_policy_folder(make(lower)) == base_policy_folder(make(checked))
    assert base_policy_folder(make(plain.model_copy(update={"lora": Lora()}))) != one


def test_validation_problems_are_not_in_the_examples(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from ops.training.cold_start import examples

    prompts: set[str] = set()
    sample = examples.sample_examples

    async def sampled(*args: Any, **kwargs: Any) -> Any:
        examples = await sample(*args, **kwargs)
        prompts.update(example["prompt"][-1]["content"] for example in examples)
        return examples

    monkeypatch.setattr(examples, "sample_examples", sampled)
    setup = make(SETTINGS.model_copy(update={"steps": 40, "batch": 4}))
    folder = taught(setup)
    unseen = held_out(setup.workspace.data / "training_mix.jsonl", setup.recipe)
    team = PolicyCard.read(folder).team(setup.pool, ROOT / "data", setup.recipe.execution)
    assert len(unseen) == 8
    assert not prompts & {team.messages(problem)[-1]["content"] for problem in unseen}
    assert len(prompts) > 8


def test_below_the_share_grpo_is_refused_with_the_reasons_and_no_step_is_done(make: Make) -> None:
    setup = make(SETTINGS.model_copy(update={"steps": 1}))
    folder = taught(setup)
    assert setup.recipe.cold_start is not None
    found = verdict(folder, setup.recipe.cold_start)
    assert not found.passed and found.validity is not None
    assert found.validity.share < 0.95
    assert found.validity.valid + sum(found.validity.failures.values()) == 8
    run = write_run(setup, folder)
    with pytest.raises(NotTaught, match=r"of 8 completions are workflows .*GRPO starts from 95%.*cold_start\.steps"):
        grpo.train(run)
    assert RunResult.read(run) is None and not (run / "checkpoints").exists()
    anyway = setup.recipe.cold_start.model_copy(update={"validation": Validation(problems=8, least_valid=0.0)})
    lower = make(anyway)
    assert taught(lower) == folder  # no cold start is repeated
    check_taught(folder, lower.recipe.cold_start)


def test_without_a_validation_section_half_of_the_completions_must_be_workflows(make: Make) -> None:
    """The share is measured on problems of the mix without holding
    any out: the policy is the same as without a threshold.
    """
    setup = make(SETTINGS.model_copy(update={"steps": 1, "validation": None}))
    assert setup.recipe.cold_start is not None
    folder = taught(setup)
    found = verdict(folder, setup.recipe.cold_start)
    assert not found.passed and found.validity is not None
    assert (found.validity.problems, "GRPO starts from 50%" in found.said) == (40, True)
    lower = make(setup.recipe.cold_start.model_copy(update={"least_valid": 0.0}))
    assert base_policy_folder(lower) == folder
    assert verdict(folder, lower.recipe.cold_start).passed
    write_problems(setup.workspace.data / "shortlist.jsonl", generate("math500", "train", 43, 1))
    assert len(validated_on(setup.workspace.data, setup.recipe)) == 3, "what the mix left out, where there is some"


def test_drawn_in_another_way_the_same_policy_is_validated_again(make: Make) -> None:
    setup = make(SETTINGS.model_copy(update={"steps": 1}))
    folder = taught(setup)
    before = ColdStartRecord.read(folder)
    assert before is not None and before.validation is not None
    assert before.validation.drawn["temperature"] == 1.0
    colder = setup.recipe.grpo.model_copy(update={"temperature": 0.5})
    other = replace(setup, recipe=setup.recipe.model_copy(update={"grpo": colder}))
    assert taught(other) == folder
    after = ColdStartRecord.read(folder)
    assert after is not None and after.validation is not None
    assert after.validation.drawn["temperature"] == 0.5
    assert after.model_copy(update={"validation": before.validation}) == before
    written = (folder / "cold_start.json").stat().st_mtime_ns
    taught(other)
    assert (folder / "cold_start.json").stat().st_mtime_ns == written


def test_cut_off_completions_name_the_limit_as_the_remedy(tmp_path: Path) -> None:
    counts = {"problems": 10, "valid": 4, "failures": {"cut_off": 5, "unbalanced": 1}}
    (tmp_path / "cold_start.json").write_text(json.dumps({"loss": [1.0], "validation": counts}), encoding="utf-8")
    with pytest.raises(NotTaught, match=r"40\.0%.*cut_off 5, unbalanced 1.*Raise grpo\.max_completion_tokens"):
        check_taught(tmp_path, SETTINGS)
    unasked = SETTINGS.model_copy(update={"validation": None})
    with pytest.raises(NotTaught, match=r"40\.0%.*GRPO starts from 50%.*lower cold_start\.least_valid"):
        check_taught(tmp_path, unasked)
    check_taught(tmp_path, unasked.model_copy(update={"least_valid": 0.4}))
    check_taught(tmp_path, unasked.model_copy(update={"least_valid": 0.0}))
    (tmp_path / "cold_start.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="is not the record of a cold start"):
        check_taught(tmp_path, SETTINGS)


def test_holding_out_the_whole_mix_is_refused(make: Make) -> None:
    with pytest.raises(DataError, match="holds 40 problems, of which 40 are held out"):
        taught(make(SETTINGS.model_copy(update={"validation": Validation(problems=40)})))


def test_settings_that_cannot_be_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="batch = 8 is not a multiple of micro_batch = 3"):
        ColdStart(batch=8, micro_batch=3)
    values = make().recipe.model_dump() | {"policy": {"kind": "scratch"}, "cold_start": {"lora": {}}}
    with pytest.raises(ValueError, match=r"cold_start\.lora needs pretrained weights"):
        Recipe.model_validate(values)


def test_a_package_that_is_not_installed_is_named_with_its_remedy() -> None:
    from ops.conductor.policy import model_place

    assert model_place(PretrainedPolicy(model="Qwen/Qwen2.5-7B")) == "Qwen/Qwen2.5-7B"
    with pytest.raises(DataError, match="--no-deps no_such_package"):
        model_place(PretrainedPolicy(model="package:no_such_package"))
