"""A version of the Conductor that is loaded and ready to answer: its policy, its team and its writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from ops.conductor.from_scratch import ScratchConductor
from ops.conductor.policy import Conductor, PolicyCard
from ops.conductor.untrained import PromptedConductor
from ops.conductor.vllm_conductor import ServedConductor
from ops.conductor.writer import WRITER_VARIABLE, load_conductor
from ops.config import TRANSFORMERS, Pool, Price, Serving, load_pool, load_settings, pool_file
from ops.core.errors import DataError, PodiumError
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.serving.batching import BatchWriter, CompletionWriter
from ops.serving.request_options import RequestError, RequestOptions, check_worker_names, make_problem
from ops.serving.scope import TrainingScope
from ops.serving.worker_strengths import WorkerStrengths
from ops.workers.pool_checks import check_pool
from ops.workers.providers import find_price
from ops.workflow.answer_rounds import CallBudget
from ops.workflow.team import Team

MAX_SERVER_REQUESTS = 64
"""How many requests are sent to a vLLM server at the same time. The server batches them itself."""
_PROBE_QUESTIONS = (r"What is $6 \cdot 7$?", "What is 6 * 7?", "Which element has the symbol Fe?")


class VersionFiles(NamedTuple):
    """The paths of a version's parts on this machine."""

    version: str
    policy: Path
    """Folder of the policy."""
    pool: Path
    """The YAML file of the pool with which the version was released."""
    settings: Mapping[str, Any]
    """Facts that are stored with the version: the key of its `policy`, and the workers' `strengths`."""


@dataclass
class LoadedVersion:
    """A version in memory."""

    version: str
    conductor: CompletionWriter | PromptedConductor
    card: PolicyCard
    pool: Pool
    team: Team
    """The team, without a client, of those offered workers that the pool in use has."""
    strengths: WorkerStrengths
    prices: Mapping[str, Price]
    """The price of each worker, by name."""
    batch_writer: BatchWriter | None
    """The writer of workflows; None if a worker writes them (`PromptedConductor`)."""
    call_budget: CallBudget | None
    """The call budget over all rounds since the version was loaded; None if the version writes one round."""
    scope: TrainingScope | None = None
    """Which questions the version was trained on; None if it was released without this information."""
    in_use: int = 0
    """The number of requests that still use the version."""

    @classmethod
    def load(
        cls, files: VersionFiles, settings: Serving, workspace: Workspace,
        *, on_batch: Callable[[int], None] | None = None,
    ) -> LoadedVersion:  # fmt: skip
        """Load a version. `$PODIUM_WRITER` selects the backend of its policy.

        Raises `DataError` if the folder holds no policy or the pool has none of its workers, and `ConfigError` if the
        pool cannot be read or used, or if the writer cannot write.
        """
        card = PolicyCard.read(files.policy)
        if settings.pool is None:
            pool, file = load_settings(Pool, files.pool), files.pool
        else:
            pool, file = load_pool(workspace.config, settings.pool), pool_file(workspace.config, settings.pool)
        writer = os.environ.get(WRITER_VARIABLE) or TRANSFORMERS
        conductor = load_conductor(files.policy, workspace, writer, WRITER_VARIABLE, files.settings.get("policy"))
        if isinstance(conductor, Conductor):
            import torch

            torch.set_num_threads(settings.threads)
        elif isinstance(conductor, ScratchConductor):
            threadpool_limits(settings.threads, user_api="blas")
        strengths = WorkerStrengths.from_dict(files.settings.get("strengths") or {})
        if not strengths.accuracy:  # the version was registered without profiles
            strengths = WorkerStrengths.load(workspace.data)
        loaded = cls.from_parts(
            files.version, conductor, card, pool, settings, pool_file=file, strengths=strengths, on_batch=on_batch
        )
        loaded.scope = TrainingScope.read(files.policy)
        return loaded

    @classmethod
    def from_parts(
        cls, version: str, conductor: CompletionWriter | PromptedConductor, card: PolicyCard, pool: Pool,
        settings: Serving, *, pool_file: Path | str = "config/pools", strengths: WorkerStrengths | None = None,
        on_batch: Callable[[int], None] | None = None,
    ) -> LoadedVersion:  # fmt: skip
        """Make a version from its parts. Raises the errors of `load`."""
        known = tuple(worker for worker in pool.workers if worker.name in card.offered)
        if not known:
            problem = f"has none of the workers of the policy: {', '.join(card.offered)}"
            raise DataError(pool_file, "workers", problem, "Name some of them, or train the policy on that pool")
        there = pool.model_copy(update={"workers": known})
        check_pool(there, pool_file)
        prices = {worker.name: find_price(worker, pool_file) for worker in known}
        return cls(
            version=version,
            conductor=conductor,
            card=card,
            pool=pool,
            team=card.build_team(there, resources_folder() / "data", card.execution),
            strengths=replace(strengths or WorkerStrengths(), prices=prices),
            prices=prices,
            batch_writer=None
            if isinstance(conductor, PromptedConductor)
            else BatchWriter(
                conductor,
                settings.batch if not isinstance(conductor, ServedConductor) else 1,
                lanes=MAX_SERVER_REQUESTS if isinstance(conductor, ServedConductor) else 1,
                on_batch=on_batch,
            ),
            call_budget=None if card.rounds is None else CallBudget(card.rounds.calls_ratio),
        )

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Return the names of the workers that the version may call, in its own order."""
        return tuple(self.team.names[ordinal] for ordinal in self.team.ordinals)

    def select_ordinals(self, options: RequestOptions) -> tuple[int, ...]:
        """Return the ordinals of the workers that a request may use. Raises `RequestError` for an unknown worker, or if
        none remains."""
        check_worker_names(options, self.worker_names)
        workers = [
            self.team.workers[ordinal]
            for ordinal in self.team.ordinals
            if (options.allowed is None or self.team.names[ordinal] in options.allowed)
            and self.team.names[ordinal] not in options.forbidden
        ]
        if not workers:
            field = f"{options.field}.{'forbidden' if options.forbidden else 'allowed'}"
            raise RequestError(field, "leaves no worker", f"Workers here: {', '.join(self.worker_names)}")
        if options.preference == "cost":
            workers = self.strengths.select_cheaper_half(workers)
        names = {worker.name for worker in workers}
        return tuple(ordinal for ordinal in self.team.ordinals if self.team.names[ordinal] in names)

    def has_room(self, messages: Sequence[dict[str, str]]) -> bool:
        """Return whether a prompt leaves room for a completion; safe from any thread."""
        return self.conductor.has_room(messages)

    def check_writes_workflows(self) -> None:
        """Write workflows for a few simple questions, so that a version that cannot write does not replace one that
        works.

        Raises `PodiumError` if none of them gets a valid workflow, and the writer's own errors. A prompted Conductor is
        not tested, because that would cost money.
        """
        if isinstance(self.conductor, PromptedConductor):
            return
        problems = [make_problem(text, RequestOptions()) for text in _PROBE_QUESTIONS]
        prompts = [self.team.build_messages(problem) for problem in problems]
        completions = self.conductor.complete(prompts, temperature=0.0, seed=0)
        if all(self.team.parse(completion.text).workflow is None for completion in completions):
            raise PodiumError(f"version {self.version} writes no workflow for any of {len(problems)} plain questions")

    def close(self) -> None:
        """Release the writer."""
        if self.batch_writer is not None:
            self.batch_writer.close()
        self.conductor.close()
