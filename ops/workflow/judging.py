"""Grade answers with the benchmark's grader, or with its judge (a model) if it has one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ops.config import JudgeGrader, Worker
from ops.core.errors import WorkerRefused, WorkerUnreachable
from ops.core.messages import Message
from ops.core.problem import Grade, Problem
from ops.grading import GRADERS, grade_many
from ops.grading.grader import find_own_grader
from ops.workers.scheduling import Client
from ops.workflow.control_tokens import escape_control_tokens

MAX_JUDGED_CHARACTERS = 50_000
"""The largest number of characters of an answer that a judge reads. A longer answer counts as wrong without a call."""


async def grade_answers(
    problems: Sequence[Problem], answers: Sequence[str | None], client: Client
) -> list[Grade | None]:
    """Return the grade of each problem's answer, or None where there is no answer.

    Answers of benchmarks with a judge are graded by calls of the judge, and all others in a thread. Raises the client's
    `OverBudget` and `ConfigError` after the calls in flight have ended.
    """
    grades: list[Grade | None] = [None] * len(problems)
    there = [index for index, answer in enumerate(answers) if answer is not None]
    asking = [index for index in there if GRADERS[problems[index].grader].build_judge_messages is not None]
    others = [index for index in there if GRADERS[problems[index].grader].build_judge_messages is None]
    made = await asyncio.to_thread(grade_many, [(problems[index], answers[index] or "") for index in others])
    for index, grade in zip(others, made, strict=True):
        grades[index] = grade
    calls = (ask_judge(problems[index], answers[index] or "", client) for index in asking)
    for index, result in zip(asking, await asyncio.gather(*calls, return_exceptions=True), strict=True):
        if isinstance(result, BaseException):
            raise result
        grades[index] = result
    return grades


async def ask_judge(problem: Problem, response: str, client: Client) -> Grade:
    """Let the judge of the problem's benchmark grade one response.

    The grade is unscorable if the judge cannot be reached.
    """
    grader = GRADERS[problem.grader]
    assert grader.parse_judge_reply is not None
    answer = grader.extract_answer(problem, response)
    if not answer:
        return Grade(0.0, "", "no answer found")
    if len(answer) > MAX_JUDGED_CHARACTERS:
        return Grade(0.0, answer[:200], f"longer than {MAX_JUDGED_CHARACTERS} characters")
    judge, messages = build_judge_request(problem, answer)
    try:
        reply = await client.complete(judge, messages)
    except WorkerUnreachable:
        return Grade(0.0, answer, f"the judge {judge.name} cannot be reached", unscorable=True)
    except WorkerRefused:
        return Grade(0.0, answer, f"the judge {judge.name} refuses to read it")
    return grader.parse_judge_reply(problem, answer, reply.text)._replace(cost_usd=reply.cost_usd)


def build_judge_request(problem: Problem, answer: str) -> tuple[Worker, list[Message]]:
    """Return the judge of the problem's benchmark, and the messages that ask it to grade an answer."""
    ask = GRADERS[problem.grader].build_judge_messages
    assert ask is not None
    messages = [{**message, "content": escape_control_tokens(message["content"])} for message in ask(problem, answer)]
    return find_own_grader(problem, JudgeGrader).judge, messages
