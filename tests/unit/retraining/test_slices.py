"""The night's part of the questions, and its own answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ops.config import Setup, Worker, load_pool, load_recipe
from ops.core.response import Message, Namespace, Response, Sample
from ops.core.workspace import Workspace
from ops.retraining.slices import NightlyClient, questions_of
from ops.stages.problems import materialize_raw

ROOT = Workspace.find()
ASK = [{"role": "user", "content": "?"}]


class Asked:
    def __init__(self) -> None:
        self.samples: list[int | Sample] = []

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
        self.samples.append(sample)
        return Response("x", 1, 1, 0.0, 0.0, "stop")


def test_every_night_has_answers_of_its_own_and_finds_them_again() -> None:
    client, worker = Asked(), Worker(name="a", model="local/a")
    for night in (739_000, 739_001, 739_001):
        asyncio.run(NightlyClient(client, night).complete(worker, ASK, sample=Sample(0, 1)))
    assert client.samples == [Sample(night, 1, Namespace.NIGHTS) for night in (739_000, 739_001, 739_001)]


def test_a_night_evaluates_a_question_once() -> None:
    with pytest.raises(ValueError, match="each question once"):
        asyncio.run(NightlyClient(Asked(), 739_000).complete(Worker(name="a", model="local/a"), ASK, sample=1))


def test_the_questions_go_round_until_all_were_asked(tmp_path: Path) -> None:
    recipe = load_recipe(ROOT.config, "quickstart")
    sources = {name: recipe.benchmarks[name].model_copy(update={"train": 4, "test": 5}) for name in ("math500", "mmlu")}
    recipe = recipe.model_copy(update={"benchmarks": sources})
    setup = Setup(Workspace(tmp_path), recipe, load_pool(ROOT.config, "quickstart"))
    for name in sources:
        materialize_raw(setup, name)
    nights = [questions_of(setup, 2, night) for night in range(739_000, 739_005)]
    for name in sources:
        assert all(len(night[name]) == 2 for night in nights)
        asked = [question.key for night in nights for question in night[name]]
        assert len(set(asked)) == 5 and all(asked.count(key) == 2 for key in asked)
    assert all(len(own) == 5 for own in questions_of(setup, 20, 3).values())
