"""A version in memory: which pool it uses, and how one whose workflows a worker writes is proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.conductor.policy import PolicyCard
from ops.conductor.untrained import PromptedConductor
from ops.config import Pool, PromptedPolicy, Prompting, Serving, load_pool
from ops.core.errors import ConfigError, DataError
from ops.core.workspace import Workspace
from ops.serving.loaded import LoadedVersion, VersionFiles


@pytest.fixture
def policy(tmp_path: Path) -> VersionFiles:
    """A version whose workflows its worker `solver` writes; the file of its own pool is absent."""
    pool = load_pool(Workspace.find().config, "quickstart")
    card = PolicyCard(
        recipe="r", pool=pool, offered=("solver", "scholar"), prompting=Prompting(), max_completion_tokens=64,
        untrained=PromptedPolicy(worker="solver"),
    )  # fmt: skip
    card.write(tmp_path / "policy")
    return VersionFiles("1", tmp_path / "policy", tmp_path / "pool.yaml", {})


def test_the_servers_pool_has_priority_over_the_versions_own(policy: VersionFiles) -> None:
    with pytest.raises(ConfigError, match=r"pool.yaml"):
        LoadedVersion.read(policy, Serving(), Workspace.find())
    loaded = LoadedVersion.read(policy, Serving(pool="quickstart"), Workspace.find())
    assert loaded.names == ("solver", "scholar") and isinstance(loaded.pool, Pool)
    assert isinstance(loaded.conductor, PromptedConductor) and loaded.batch_writer is None
    loaded.prove()  # its worker is not asked: that would cost money
    with pytest.raises(DataError, match="has none of the workers of the policy: solver, scholar"):
        LoadedVersion.read(policy, Serving(pool="openai"), Workspace.find())
