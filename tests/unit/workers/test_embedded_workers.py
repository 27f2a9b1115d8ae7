"""The embedded generalists through LiteLLM: sample index and
temperature reach them, and are part of the cache's key.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ops.config import load_pool
from ops.core.workspace import Workspace
from ops.synthetic.generalists import think

QUESTION = "Ana owns 31 coins. Bo owns 7 more than Ana. Ana hands 5 to Bo. How many does Bo own?"
CHAT = [{"role": "user", "content": f"{QUESTION}\nGive it in \\boxed{{}}.\n\nSubtask: Solve the problem."}]
SAMPLES = range(12)


def test_each_sample_index_has_its_own_repeatable_answer(make_client: Any) -> None:
    client, worker = make_client(), load_pool(Workspace.find().config, "quickstart").worker("apprentice")

    def answers() -> list[str]:
        return [asyncio.run(client.complete(worker, CHAT, sample=sample)).text for sample in SAMPLES]

    first = answers()
    assert worker.temperature is not None
    assert first == [think("apprentice", CHAT, sample=n, temperature=worker.temperature).text for n in SAMPLES]
    assert len(set(first)) > 1
    assert answers() == first
    assert (client.counts.live, client.counts.cached) == (len(SAMPLES), len(SAMPLES))


def test_at_temperature_0_all_samples_agree(make_client: Any) -> None:
    pool = load_pool(Workspace.find().config, "quickstart")
    client, worker = make_client(), pool.worker("apprentice").model_copy(update={"temperature": 0.0})
    assert len({asyncio.run(client.complete(worker, CHAT, sample=sample)).text for sample in SAMPLES}) == 1
