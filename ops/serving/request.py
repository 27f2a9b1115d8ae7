"""Answer one request: write its workflow, execute it, and fall back to other workers after a failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from ops.conductor.policy import Completion
from ops.conductor.untrained import PromptedConductor
from ops.config import Serving
from ops.core.errors import ConfigError, OverBudget, PodiumError
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.status import Status
from ops.serving.answer import Answer, Fallback, FallbackAction, TimedCompletion, VoteResult
from ops.serving.loaded_version import LoadedVersion
from ops.serving.request_budget import RequestBudget, RequestBudgetExceededError
from ops.serving.request_options import QuestionTooLongError, RequestOptions
from ops.workers.client import WorkerClient
from ops.workflow.answer_rounds import Question, answer_questions
from ops.workflow.grammar import ParseResult, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import QuestionTrace, StepTrace, WorkflowTrace
from ops.workflow.vote import Ballot

OnProgress = Callable[[StepTrace | Fallback], None]
RETRY_TEMPERATURE = 0.7
"""The temperature of a completion after a greedy one that held no valid workflow."""


@dataclass
class WrittenWorkflow:
    """A workflow for the question, and the completion from which it was read."""

    workflow: Workflow
    completion: str


class _Voter(NamedTuple):
    """A workflow with an answer."""

    completion: str
    workflow: str
    run: QuestionTrace


class _WorkflowVote:
    """The vote over several workflows of one question; after each wave, the answer has the workflow that leads."""

    def __init__(self, answer: Answer, ballot: Ballot) -> None:
        self._answer, self._ballot = answer, ballot
        self._voters: dict[int, _Voter] = {}
        self._latency_s = 0.0

    async def next_wave(self) -> range:
        """Return the numbers of the workflows to run now, side by side; empty once the answer stands."""
        return await asyncio.to_thread(self._ballot.next_workflows)

    async def count_answers(self, wave: range, ended: Sequence[_Voter | BaseException | None]) -> None:
        """Count the answers of a wave. Raises the first error among them."""
        voters: dict[int, _Voter | None] = {}
        for number, each in zip(wave, ended, strict=True):
            if isinstance(each, BaseException):
                raise each
            voters[number] = each
        self._ballot.add_answers([None if each is None else each.run.answer for each in voters.values()])
        found = {number: each for number, each in voters.items() if each is not None}
        self._voters |= found
        self._latency_s += max((each.run.latency_s for each in found.values()), default=0.0)
        winners, answer = await asyncio.to_thread(lambda: self._ballot.winners), self._answer
        answer.vote = VoteResult(len(self._ballot.answers), len(winners), self._latency_s)
        if (winner := self._voters.get(winners[0])) is not None:
            answer.completion, answer.workflow, answer.answer_run = winner


class ServedRequest:
    """A request that is being answered. Its attribute `answer` is the result so far."""

    def __init__(
        self,
        loaded: LoadedVersion,
        problem: Problem,
        options: RequestOptions,
        settings: Serving,
        client: WorkerClient,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._options, self._settings, self._client = options, settings, client
        self._on_progress = on_progress
        self._voting = False
        self._first_status = Status.CANCELLED
        """How the first of several workflows that vote ended."""
        self._next_call_usd: list[float] = []
        """Worst cases of the calls that the budget did not allow."""
        self.answer = Answer(problem, loaded.version)
        self.set_version(loaded)

    def set_version(self, loaded: LoadedVersion) -> None:
        """Let this version answer the request. It is called before `run`. Raises `RequestError`."""
        self.loaded, self.answer.version = loaded, loaded.version
        self.answer.notice = "" if loaded.scope is None else loaded.scope.write_notice(self.answer.problem.question)
        own, most = self._options.budget_usd, self._settings.budget_usd
        self._budget = RequestBudget(self._client, most if own is None else min(own, most), loaded.prices)
        self._left = list(loaded.select_ordinals(self._options))

    async def check_length(self, field: str) -> None:
        """Raise `QuestionTooLongError`, which names `field`, if the question is too long for the policy."""
        messages, limit = self._make_team().build_messages(self.answer.problem), self.loaded.conductor.prompt_limit
        if limit is not None and not await asyncio.to_thread(self.loaded.has_room, messages):
            raise QuestionTooLongError(field, limit)

    async def run(self) -> Answer:
        """Try to answer until there is an answer, no worker is left, or the deadline has passed.

        If several workflows vote, the first has the same fallbacks as without a vote, and the others have none. Raises
        errors that neither another worker nor another workflow would correct.
        """
        deadline_s = min(self._settings.deadline_s, self._options.deadline_s or self._settings.deadline_s)
        limit, answer, vote = asyncio.timeout(deadline_s), self.answer, self._options.vote or self._settings.vote
        self._voting = vote.workflows > 1 and not self._options.is_open and self._options.execute
        try:
            async with limit:
                if not self._voting:
                    await self._run_first_workflow()
                    return answer
                election, team = _WorkflowVote(answer, Ballot.for_problem(answer.problem, vote)), self._make_team()
                while wave := await election.next_wave():
                    # All tasks end before an error is raised, because responses of calls in flight must be stored.
                    running = (
                        self._run_voter(each, vote.temperature, team) if each else self._run_first_workflow()
                        for each in wave
                    )
                    await election.count_answers(wave, await asyncio.gather(*running, return_exceptions=True))
                self._voting = False
                if answer.answer_run is not None:
                    self._set_status(Status.ANSWERED, "")
                else:  # no answer was kept
                    answer.status = self._first_status
                    answer.fallbacks = [each._replace(then="nothing") for each in answer.fallbacks]
        except TimeoutError:
            if not limit.expired():
                raise  # this was not caused by the deadline, so it is a bug
            self._voting = False
            self._set_status(Status.TIMED_OUT, f"the deadline of {deadline_s:g} s passed")
        finally:
            answer.paid_usd = self._budget.paid_usd
        return answer

    async def _run_voter(self, number: int, temperature: float, team: Team) -> _Voter | None:
        """Write and execute another workflow; None, with a fallback, without an answer. The seed is none of those with
        which the first workflow is tried."""
        messages = team.build_messages(self.answer.problem)
        with self._measure_time("writing_s"):
            try:
                completion = await self._request_completion(
                    messages, temperature, seed=self._settings.attempts + number
                )
            except PodiumError as error:
                self._record_error(Status.WRITER_FAILED, error, "kept")
                return None
        parsed = team.parse(completion)
        if parsed.workflow is None:
            self._record_fallback(Status.NO_WORKFLOW, "", f"{parsed.failure}: {parsed.detail}", "kept")
            return None
        run = await self._execute(WrittenWorkflow(parsed.workflow, completion), team, number)
        return None if run is None or run.answer is None else _Voter(completion, parsed.workflow.render(), run)

    async def _run_first_workflow(self) -> _Voter | None:
        """Write the first workflow and execute it, with all fallbacks; None without an answer."""
        written = await self._write_workflow()
        if not self._options.execute:
            if written is None and self.answer.fallbacks[-1].reason in (Status.OVER_BUDGET, Status.SERVER_BUDGET):
                self._set_status(*self._explain_no_answer())
            elif written is None:
                self._set_status(Status.NO_WORKFLOW, f"no workflow was written ({self.answer.fallbacks[-1].error})")
            else:
                self._set_status(Status.NOT_RUN, "")
                self.answer.text = self.answer.workflow
            return None
        rewrites = self._settings.rewrites
        while written is not None:
            run = await self._execute(written)
            if run is not None and run.answer is not None:
                self._record_run(run)
                return self._make_first_voter()
            failed = self._find_failed_workers(run)
            self._left = [ordinal for ordinal in self._left if ordinal not in failed]
            if not self._left or rewrites == 0 or not failed:
                break
            rewrites -= 1
            written = await self._write_workflow()
            if written is not None:
                self._resolve_fallbacks("rewritten")
        await self._try_workers()
        return self._make_first_voter()

    def _make_first_voter(self) -> _Voter | None:
        answer = self.answer
        return _Voter(answer.completion, answer.workflow, answer.answer_run) if answer.answer_run is not None else None

    # ── writing ──────────────────────────────────────────────────────────────

    def _make_team(self) -> Team:
        team = self.loaded.team
        if len(self._left) < len(team.ordinals):
            team = team.restrict_to(self._left)
        return replace(team, client=self._budget)

    async def _write_workflow(self) -> WrittenWorkflow | None:
        """A workflow: greedy first, then sampled. None, with a fallback, where none is written."""
        team, detail = self._make_team(), ""
        messages = team.build_messages(self.answer.problem)
        with self._measure_time("writing_s"):
            for attempt in range(self._settings.attempts):
                temperature = RETRY_TEMPERATURE if attempt else 0.0
                try:
                    completion = await self._request_completion(messages, temperature, seed=attempt)
                except PodiumError as error:
                    self._record_error(Status.WRITER_FAILED, error)
                    return None
                self.answer.attempts += 1
                self.answer.completion = completion
                parsed = team.parse(completion)
                if parsed.workflow is not None:
                    self.answer.workflow = parsed.workflow.render()
                    return WrittenWorkflow(parsed.workflow, completion)
                detail = f"{parsed.failure}: {parsed.detail}"
        self._record_fallback(Status.NO_WORKFLOW, "", detail)
        return None

    async def _request_completion(self, messages: Sequence[Message], temperature: float = 0.0, seed: int = 0) -> str:
        """One completion, noted among the answer's drafts."""
        asked = time.time()
        try:
            written, began = await self._complete(messages, temperature, seed, asked)
        except PodiumError as error:
            self.answer.completions.append(
                TimedCompletion(tuple(messages), asked, asked, time.time(), None, str(error))
            )
            raise
        self.answer.completions.append(TimedCompletion(tuple(messages), asked, began, time.time(), written))
        return written.text

    async def _complete(
        self, messages: Sequence[Message], temperature: float, seed: int, asked: float
    ) -> tuple[Completion, float]:
        """One completion, and when it began to be written. A worker that writes is paid from the request's budget, and
        is asked whichever workers the request allows for steps."""
        conductor, batches = self.loaded.conductor, self.loaded.batch_writer
        if isinstance(conductor, PromptedConductor):
            team = replace(self.loaded.team, client=self._budget)
            return await conductor.write_completion(messages, team, sample=seed), asked
        assert batches is not None  # only a prompted Conductor has no batch writer
        return await batches.write(messages, temperature=temperature, seed=seed)

    # ── executing ────────────────────────────────────────────────────────────

    async def _execute(
        self, written: WrittenWorkflow, team: Team | None = None, number: int = 0
    ) -> QuestionTrace | None:
        """Execute the workflow with this number and its further rounds; None, with a fallback, where that is broken
        off."""
        limits = None if self._options.preference == "cost" else self.loaded.card.rounds
        team = team or self._make_team()
        question = Question(
            self.answer.problem, team, number, written.completion, ParseResult(written.workflow),
            parameters=self._options.model_dump(include={"response_format"}, exclude_none=True),
        )  # fmt: skip
        then: FallbackAction = "kept" if number else "nothing"
        with self._measure_time("working_s"):
            try:
                [run] = await answer_questions(
                    [question], self._write_later_rounds, limits,
                    budget=self.loaded.call_budget, has_room=self.loaded.has_room,
                    on_step=self._record_step if number else self._report_progress,
                )  # fmt: skip
            except (OverBudget, ConfigError) as error:
                self._record_error(Status.MISCONFIGURED, error, then)
                return None
        self.answer.runs.append(run)
        for step in _list_failed_steps(run):
            self._record_fallback(step.status, step.worker, step.error, then)
        if run.answer is None and run.status == Status.TIMED_OUT:
            self._record_fallback(Status.TIMED_OUT, "", run.error, then)
        return run

    async def _write_later_rounds(self, prompts: list[list[Message]]) -> list[str]:
        """The completion of a later round."""
        try:
            return [await self._request_completion(prompt) for prompt in prompts]
        except PodiumError as error:  # the later round failed, and the answer of the round before is returned
            self._record_fallback(Status.WRITER_FAILED, "", str(error))
            return [""] * len(prompts)

    async def _try_workers(self) -> None:
        """Ask the best of the remaining workers alone, then the next, until one answers."""
        fallbacks = self.answer.fallbacks
        while self._left and not any(fallback.reason == Status.SERVER_BUDGET for fallback in fallbacks):
            workers = [self.loaded.team.workers[ordinal] for ordinal in self._left]
            best, source = self.loaded.strengths.choose_best(workers, self.answer.problem.domain)
            self._resolve_fallbacks("best_worker", f"{best.name}, by {source}")
            ordinal = next(ordinal for ordinal in self._left if self.loaded.team.workers[ordinal] is best)
            workflow = Workflow.single(ordinal)
            self.answer.workflow = workflow.render()
            run = await self._execute(WrittenWorkflow(workflow, self.answer.workflow))
            if run is not None and run.answer is not None:
                self._record_run(run)
                return
            self._left.remove(ordinal)
        self._resolve_fallbacks("nothing")
        self._set_status(*self._explain_no_answer())

    # ── results ──────────────────────────────────────────────────────────────

    def _record_step(self, item: StepTrace | WorkflowTrace) -> None:
        if isinstance(item, StepTrace):
            self.answer.steps.append(item)
            if self._on_progress is not None:
                self._on_progress(item)

    def _report_progress(self, item: StepTrace | WorkflowTrace) -> None:
        self._record_step(item)
        if isinstance(item, WorkflowTrace) and item.answer is not None:  # this is kept in case the next round fails
            self.answer.answer_run = QuestionTrace.from_execution(item)

    def _record_run(self, run: QuestionTrace) -> None:
        self.answer.answer_run = run
        self._resolve_fallbacks("kept")
        self._set_status(Status.ANSWERED, "")

    def _set_status(self, status: Status, error: str) -> None:
        answer = self.answer
        if answer.answer_run is not None:
            if status not in (Status.ANSWERED, Status.CANCELLED):
                answer.fallbacks.append(Fallback(status, "", "kept", error=error))
            status, answer.text, error = Status.ANSWERED, answer.answer_run.answer, ""
        answer.error = error
        if self._voting:
            self._first_status = status  # the answer counts as cancelled until the vote has ended
        else:
            answer.status = status

    def _find_failed_workers(self, run: QuestionTrace | None) -> set[int]:
        names = {step.worker for step in _list_failed_steps(run)} if run is not None else set()
        names |= {fallback.worker for fallback in self.answer.fallbacks if fallback.reason == Status.MISCONFIGURED}
        return {ordinal for ordinal in self._left if self.loaded.team.names[ordinal] in names}

    def _record_error(self, reason: Status, error: PodiumError, then: FallbackAction = "nothing") -> None:
        """Add the fallback for a call that was not made: a budget's, a wrong setting's, or `reason`."""
        worker = ""
        if isinstance(error, RequestBudgetExceededError):
            self._next_call_usd.append(error.worst_usd)
            reason = Status.OVER_BUDGET
        elif isinstance(error, OverBudget):
            reason = Status.SERVER_BUDGET
        elif isinstance(error, ConfigError):
            reason, worker = Status.MISCONFIGURED, self._find_worker_in(error)
        self._record_fallback(reason, worker, str(error), then)

    def _record_fallback(self, reason: Status, worker: str, error: str, then: FallbackAction = "nothing") -> None:
        self.answer.fallbacks.append(Fallback(reason, worker, then, error=error))

    def _resolve_fallbacks(self, then: str, by: str = "") -> None:
        """Complete the fallbacks that are still open."""
        fallbacks = self.answer.fallbacks
        for index, fallback in enumerate(fallbacks):
            if fallback.then == "nothing":
                fallbacks[index] = fallback._replace(then=then, by=by)  # type: ignore[arg-type]
                if self._on_progress is not None:
                    self._on_progress(fallbacks[index])

    def _explain_no_answer(self) -> tuple[Status, str]:
        last, reasons = self.answer.fallbacks[-1], [fallback.reason for fallback in self.answer.fallbacks]
        if Status.OVER_BUDGET in reasons:
            budget, paid = self._budget.budget_usd, self._budget.paid_usd
            limit = "its budget_usd" if budget == self._options.budget_usd else "the server's budget_usd"
            return Status.OVER_BUDGET, (
                f"the request may spend {budget:g} USD ({limit}), {paid:.6f} are spent, and the cheapest call that was "
                f"tried may cost {min(self._next_call_usd):.6f} USD"
            )
        if Status.SERVER_BUDGET in reasons:
            errors = [fallback.error for fallback in self.answer.fallbacks if fallback.reason == Status.SERVER_BUDGET]
            return Status.SERVER_BUDGET, f"the month's budget of this server does not pay for an answer ({errors[-1]})"
        is_of_workers = last.reason.is_failure or last.reason == Status.TIMED_OUT
        status = last.reason if is_of_workers else Status.UNREACHABLE
        return status, f"no worker on offer gave an answer; the last error: {last.error}"

    def _find_worker_in(self, error: ConfigError) -> str:
        """The worker whose setting a `ConfigError` names."""
        names = sorted(self.loaded.team.names, key=len, reverse=True)
        return next((name for name in names if f"{error.field}.".startswith(f"workers.{name}.")), "")

    @contextmanager
    def _measure_time(self, part: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            setattr(self.answer, part, getattr(self.answer, part) + time.monotonic() - began)


def _list_failed_steps(run: QuestionTrace) -> Sequence[StepTrace]:
    """The failed steps of the last execution: earlier ones already had their fallback."""
    return [step for step in run.executions[-1].steps if step.status.is_failure] if run.executions else []
