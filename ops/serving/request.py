"""One request on its way to its answer: written, executed, and led round whoever fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ops.benchmarks.prompts import worker_prompt
from ops.config import Serving
from ops.core.errors import ConfigError, OverBudget, PodiumError
from ops.core.problem import Problem
from ops.core.response import Message
from ops.serving.answer import Answer, Fallback, Run, Status
from ops.serving.loaded import Loaded
from ops.serving.request_budget import RequestBudget, RequestOverBudget
from ops.serving.request_options import RequestOptions
from ops.workers.client import WorkerClient
from ops.workflow.execution import execute
from ops.workflow.grammar import Workflow
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.recursion import RecursiveTrace, recurse
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import FAILURES, StepTrace, Trace

OnProgress = Callable[[StepTrace | Fallback], None]
WARMTH = 0.7
"""Temperature of the completions after a greedy one that was no workflow."""
_SPENT = {"over_budget": "The request's budget", "server_budget": "The month's budget of this server"}


@dataclass
class Written:
    """A workflow for the question, and the completion that it was read from."""

    workflow: Workflow
    completion: str


class ServedRequest:
    """One request; `answer` is what has come of it so far."""

    def __init__(
        self,
        loaded: Loaded,
        problem: Problem,
        options: RequestOptions,
        settings: Serving,
        client: WorkerClient,
        scheduler: Scheduler,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.loaded, self._options, self._settings = loaded, options, settings
        self._scheduler, self._on_progress = scheduler, on_progress
        budget = min(settings.budget_usd, options.budget_usd if options.budget_usd is not None else settings.budget_usd)
        self._budget = RequestBudget(client, budget, loaded.prices)
        self._left = list(loaded.offered(options))
        self.answer = Answer(problem, loaded.version)

    async def run(self) -> Answer:
        """Ask until there is an answer or nothing left to try, within the deadline."""
        deadline_s = min(self._settings.deadline_s, self._options.deadline_s or self._settings.deadline_s)
        limit, answer = asyncio.timeout(deadline_s), self.answer
        try:
            async with limit:
                await self._run()
        except TimeoutError:
            if not limit.expired():
                raise  # not ours: a bug's
            self._end("timed_out", f"the deadline of {deadline_s:g} s passed")
        finally:
            answer.paid_usd = self._budget.paid_usd
        return answer

    async def _run(self) -> None:
        written = await self._write(self._team())
        if not self._options.execute:
            if written is None:
                self._end("no_workflow", f"no workflow was written ({self.answer.fallbacks[-1].error})")
            else:
                self._end("not_run", "")
                self.answer.text = self.answer.workflow
            return
        rewrites = self._settings.rewrites
        while written is not None:
            run = await self._carry_out(written)
            if run is not None and run.answer is not None:
                self._stands(run)
                return
            failed = self._failed(run)
            self._left = [ordinal for ordinal in self._left if ordinal not in failed]
            if not self._left or rewrites == 0 or not failed:
                break
            rewrites -= 1
            written = await self._write(self._team())
            if written is not None:
                self._then("rewritten")
        await self._ask_alone()

    # ── writing ──────────────────────────────────────────────────────────────

    def _team(self) -> Team:
        whole = self.loaded.team
        if len(self._left) < len(whole.ordinals):
            whole = whole.offering(self._left)
        return replace(whole, client=self._budget)

    async def _write(self, team: Team) -> Written | None:
        """A workflow: greedy first, then sampled. None, with a fallback, where none comes of it."""
        messages, detail = team.messages(self.answer.problem), ""
        with self._clock("writing_s"):
            for attempt in range(self._settings.attempts):
                try:
                    completion = await self.loaded.batch_writer.write(
                        messages, temperature=WARMTH if attempt else 0.0, seed=attempt
                    )
                except PromptTooLongError as error:
                    self._fall_back("question_too_long", "", str(error))
                    return None
                except PodiumError as error:  # a server that writes is away
                    self._fall_back("writer_failed", "", str(error))
                    return None
                self.answer.attempts += 1
                self.answer.completion = completion
                parsed = team.read(completion)
                if parsed.workflow is not None:
                    self.answer.workflow = parsed.workflow.render()
                    return Written(parsed.workflow, completion)
                detail = f"{parsed.failure}: {parsed.detail}"
        self._fall_back("no_workflow", "", detail)
        return None

    # ── executing ────────────────────────────────────────────────────────────

    async def _carry_out(self, written: Written) -> Run | None:
        """The workflow with its further rounds; None where it broke off, with a fallback."""
        team, limits = self._team(), self.loaded.card.rounds
        with self._clock("working_s"):
            try:
                if limits is None or self._options.preference == "cost":
                    run: Run = await self._execute(written.workflow, team)
                else:
                    run = await self._in_rounds(written, team)
            except RequestOverBudget as error:
                self._fall_back("over_budget", "", str(error))
                return None
            except OverBudget as error:
                self._fall_back("server_budget", "", str(error))
                return None
            except ConfigError as error:
                self._fall_back("misconfigured", self._named_in(error), str(error))
                return None
        self.answer.runs.append(run)
        for step in _failures(run):
            self._fall_back(step.status, step.worker, step.error)
        if isinstance(run, Trace) and run.status == "timed_out":
            self._fall_back("timed_out", "", run.error)
        return run

    async def _execute(self, workflow: Workflow, team: Team) -> Trace:
        question = worker_prompt(self.answer.problem)
        return await execute(workflow, question, team, scheduler=self._scheduler, told=self._told)

    async def _in_rounds(self, written: Written, team: Team) -> RecursiveTrace:
        limits, begun = self.loaded.card.rounds, False
        assert limits is not None

        async def write(prompts: list[list[Message]]) -> list[str]:
            nonlocal begun
            if not begun:  # its first workflow is written already
                begun = True
                return [written.completion]
            return [await self.loaded.batch_writer.write(prompt) for prompt in prompts]

        [rounds] = await recurse(
            [self.answer.problem], write, team, limits,
            scheduler=self._scheduler, budget=self.loaded.calls, fits=self.loaded.fits, told=self._told,
        )  # fmt: skip
        return rounds

    async def _ask_alone(self) -> None:
        """The best of the remaining workers, then the next, until one answers."""
        fallbacks = self.answer.fallbacks
        while self._left and not any(fallback.reason == "server_budget" for fallback in fallbacks):
            workers = [self.loaded.team.workers[ordinal] for ordinal in self._left]
            best, source = self.loaded.strengths.best(workers, self.answer.problem.domain)
            self._then("best_worker", f"{best.name}, by {source}")
            ordinal = next(ordinal for ordinal in self._left if self.loaded.team.workers[ordinal] is best)
            workflow = Workflow.single(ordinal)
            self.answer.workflow = workflow.render()
            run = await self._carry_out(Written(workflow, self.answer.workflow))
            if run is not None and run.answer is not None:
                self._stands(run)
                return
            self._left.remove(ordinal)
        self._then("nothing")
        self._end(*self._why_nothing())

    # ── what happened ────────────────────────────────────────────────────────

    def _told(self, news: StepTrace | Trace) -> None:
        if isinstance(news, StepTrace):
            self.answer.steps.append(news)
            if self._on_progress is not None:
                self._on_progress(news)
        elif news.answer is not None:
            self.answer.standing = news  # should the next round not come to its end

    def _stands(self, run: Run) -> None:
        self.answer.standing = run
        self._then("kept")
        self._end("answered", "")

    def _end(self, status: Status, error: str) -> None:
        answer = self.answer
        if answer.standing is not None:
            if status not in ("answered", "cancelled"):
                answer.fallbacks.append(Fallback(status, "", "kept", error=error))
            status, answer.text, error = "answered", answer.standing.answer, ""
        answer.status, answer.error = status, error

    def _failed(self, run: Run | None) -> set[int]:
        names = {step.worker for step in _failures(run)} if run is not None else set()
        names |= {fallback.worker for fallback in self.answer.fallbacks if fallback.reason == "misconfigured"}
        return {ordinal for ordinal in self._left if self.loaded.team.names[ordinal] in names}

    def _fall_back(self, reason: str, worker: str, error: str) -> None:
        self.answer.fallbacks.append(Fallback(reason, worker, "nothing", error=error))

    def _then(self, then: str, by: str = "") -> None:
        """Say where the fallbacks led whose end was open."""
        fallbacks = self.answer.fallbacks
        for index, fallback in enumerate(fallbacks):
            if fallback.then == "nothing":
                fallbacks[index] = fallback._replace(then=then, by=by)  # type: ignore[arg-type]
                if self._on_progress is not None:
                    self._on_progress(fallbacks[index])

    def _why_nothing(self) -> tuple[Status, str]:
        reasons = [fallback.reason for fallback in self.answer.fallbacks]
        for status, words in _SPENT.items():
            if status in reasons:
                errors = [fallback.error for fallback in self.answer.fallbacks if fallback.reason == status]
                return status, f"{words} does not last for an answer ({errors[-1]})"  # type: ignore[return-value]
        last = self.answer.fallbacks[-1]
        status = last.reason if last.reason in (*FAILURES, "timed_out") else "unreachable"
        return status, f"no worker on offer gave an answer; at last {last.error}"  # type: ignore[return-value]

    def _named_in(self, error: ConfigError) -> str:
        """The worker whose setting a `ConfigError` names."""
        names = sorted(self.loaded.team.names, key=len, reverse=True)
        return next((name for name in names if f"{error.field}.".startswith(f"workers.{name}.")), "")

    @contextmanager
    def _clock(self, part: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            setattr(self.answer, part, getattr(self.answer, part) + time.monotonic() - began)


def _failures(run: Run) -> Sequence[StepTrace]:
    """The steps that gave no response, of the last execution: an earlier one's were led round already."""
    last = run if isinstance(run, Trace) else run.traces[-1] if run.traces else None
    return [step for step in last.steps if step.status in FAILURES] if last else []
