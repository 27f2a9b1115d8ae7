"""Settings of operations: `config/promotion.yaml`, `retraining.yaml` and `serving.yaml`."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import DAY_S, PoolName, Settings
from ops.config.pool import Pool
from ops.config.recipe import Vote


class PromotionGate(Settings):
    """The conditions under which a new version (the challenger) replaces the version that is served (the champion)."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """The two-sided confidence of all comparisons with one champion together. A challenger that is worse than the
    bounds below allow is promoted with a probability of at most (1 − confidence) / 2, however many challengers are
    compared."""
    planned_analyses: int | None = Field(default=None, ge=1)
    """The number of challengers that will be compared with one champion. Each comparison then gets the same share of
    this probability, and later challengers are refused. If it is not set, comparison k gets the share 1/(k·(k+1)), and
    the number is unlimited."""
    min_gain_over_best_worker: float = Field(default=0.0, ge=-1, le=1)
    """The accuracy (0 to 1) by which the mean over the benchmarks must exceed that of the best single worker, at the
    lower end of the score interval."""
    max_loss_against_champion: float = Field(default=0.01, ge=0)
    """The accuracy (0 to 1) that the challenger may lose against the champion, at the lower end of the score
    interval."""
    max_benchmark_loss: float = Field(default=0.05, ge=0)
    """The accuracy (0 to 1) that the challenger may lose against the champion on any single benchmark."""
    max_cost_ratio: float = Field(default=1.5, gt=0)
    """The largest ratio of the challenger's cost of a question to the champion's, over the questions for which both
    wrote a valid workflow."""
    max_latency_ratio: float = Field(default=1.5, gt=0)
    """The largest ratio of the challenger's mean time for a question to the champion's, over the questions for which
    both wrote a valid workflow. The time is that of the longest chain of steps."""
    max_p95_latency_ratio: float | None = Field(default=None, gt=0)
    """The largest ratio of the 95th percentiles of these times. If it is not set, the ratio is shown and not
    checked."""
    min_cost_questions: int = Field(default=50, ge=1)
    """The smallest number of questions on which cost and time are compared with the champion's. In an evaluation with
    fewer questions, the share `min_paired_share` of them suffices. If fewer are left, the challenger has to keep the
    two bounds below instead, and it is not promoted if one of them is not set."""
    max_question_usd: float | None = Field(default=None, gt=0)
    """The largest mean cost of a question, in US dollars, over the questions for which the challenger wrote a valid
    workflow. If it is not set, there is no such bound."""
    max_question_s: float | None = Field(default=None, gt=0)
    """The largest mean time for a question, in seconds, over the same questions. If it is not set, there is no such
    bound."""
    min_format_compliance: float = Field(default=0.95, ge=0, le=1)
    """The smallest share of the challenger's completions that are valid workflows."""
    min_shared_workflows: float = Field(default=0.95, ge=0, le=1)
    """The smallest share of the challenger's completions that are valid workflows on the questions for which the
    champion wrote one. The questions on which only the challenger failed are left out of the comparison of cost and
    time, and this limits their number."""
    min_judge_agreement: float = Field(default=0.8, ge=0, le=1)
    """For a benchmark that a judge grades: the smallest share of right answers that the judge must accept, and of wrong
    answers that it must reject. Both are measured on labelled answers, at the lower end of the 95 % interval. Without a
    measurement the challenger is not promoted."""
    min_paired_share: float = Field(default=0.9, gt=0, le=1)
    """The smallest share of the other system's questions that both systems have answered and that could be graded. With
    less, the two are not compared and the challenger is not promoted."""


class Drift(Settings):
    """The stored questions that are asked again every night, to detect whether a worker or the champion has changed."""

    questions: int = Field(default=48, ge=1)
    """The number of questions for every worker, and for the champion, in one night."""
    false_alarms: float = Field(default=0.01, gt=0, lt=0.5)
    """The probability that an unchanged worker, or an unchanged champion, is reported as changed within 365 nights."""


class Retraining(Settings):
    """What happens after a change of the champion's pool."""

    settle_s: float = Field(default=60.0, ge=0, le=DAY_S)
    """The time in seconds for which the files of the pool must be unchanged before anything starts. Several edits in a
    row then count as one change."""
    budget_usd: float = Field(default=5.0, ge=0)
    """The cost of a plan, in US dollars, up to which the sensor starts it without asking. A more expensive plan needs a
    person's approval."""
    min_oracle_rise: float = Field(default=0.02, ge=0, le=1)
    """The accuracy (0 to 1) that a new worker must add before the Conductor is trained for it. It is the gain from
    choosing the best worker for each training question, at the lower end of the interval. The choice is tested on
    answers that were not used to make it."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """The confidence of the two-sided intervals that decide whether a training for a new worker pays."""
    drift: Drift = Drift()
    """The stored questions that are asked again every night."""


class PoolChange(Settings):
    """A change of the champion's pool, with the pool that was handled last."""

    version: str
    """The champion's version in the registry."""
    policy: str
    """The key of its policy."""
    before: Pool


class Serving(Settings):
    """The limits of the server, and the defaults of requests."""

    pool: PoolName | None = None
    """A pool of `config/pools` (`NAME` or `NAME:VARIANT`) whose workers the server asks instead of those that were
    released with the champion. It can name other endpoints or prices, or contain only some of the workers. Workers are
    matched by name."""
    budget_usd: float = Field(default=1.0, ge=0)
    """The maximum cost of the calls of one request, in US dollars. A request may set a lower value, but not a higher
    one."""
    deadline_s: float = Field(default=600.0, gt=0, le=DAY_S)
    """The maximum time in seconds from the moment when a request is accepted to its answer. A request may set a lower
    value, but not a higher one."""
    month_usd: float | None = Field(default=None, ge=0)
    """The maximum cost of all requests of a calendar month (UTC) together, in US dollars. It holds for all servers that
    share the ledger. If it is not set, there is no limit."""
    at_once: int = Field(default=256, ge=1, le=100_000)
    """The maximum number of requests that are processed at the same time."""
    waiting: int = Field(default=256, ge=0, le=100_000)
    """The maximum number of requests that wait for a place. Further requests are refused with status 429."""
    batch: int = Field(default=64, ge=1, le=10_000)
    """The maximum number of questions whose workflows are written in one batch."""
    threads: int = Field(default=1, ge=1, le=1024)
    """The number of CPU threads of a policy that generates in this process. More than one is useful for models of
    hundreds of millions of parameters on cores that are otherwise idle. On busy cores, threads wait for each other
    longer than they compute."""
    attempts: int = Field(default=3, ge=1, le=10)
    """The maximum number of completions that are tried until one is a valid workflow. The first is decoded greedily,
    and the others are sampled."""
    rewrites: int = Field(default=1, ge=0, le=10)
    """How often the Conductor may write another workflow without the workers that failed. After that, the best of the
    remaining workers is asked alone."""
    vote: Vote = Vote()
    """How many workflows answer a request that does not say so itself. If the answer may have any form (grader `open`),
    a single workflow answers, because such answers cannot be compared."""
    follow_s: float = Field(default=5.0, gt=0, le=DAY_S)
    """The time in seconds between two checks whether another version has become the champion."""
    drain_s: float = Field(default=30.0, ge=0, le=DAY_S)
    """The time in seconds that running requests have to finish when the server is stopped."""
    stalled_s: float = Field(default=180.0, gt=0, le=DAY_S)
    """The time in seconds without a finished batch, while requests wait for one, after which `/health` returns status
    503."""
    keep_alive_s: float = Field(default=15.0, gt=0, le=DAY_S)
    """The time in seconds without an event after which a stream receives a comment, so that no proxy closes the
    connection."""
    request_bytes: int = Field(default=1_000_000, ge=1000)
    """The maximum size of the body of a request in bytes. A larger request is refused with status 413."""
    held_bytes: int = Field(default=256_000_000, ge=1000)
    """The maximum size of the bodies of all requests together, in bytes. A request that would exceed it is refused with
    status 429."""
    head_s: float = Field(default=15.0, gt=0, le=DAY_S)
    """The time in seconds in which a client must send the headers of a request."""
    body_s: float = Field(default=60.0, gt=0, le=DAY_S)
    """The time in seconds in which a client must send the body of a request."""
    connections: int | None = Field(default=None, ge=1)
    """The maximum number of open connections. Beyond it, the connection that has been idle for the longest time is
    closed. If none is idle, new connections are refused with status 503. If it is not set, it follows from the limit of
    open files and is at most 20,000."""
    traced_share: float = Field(default=1.0, ge=0, le=1)
    """The share of requests to OpenAI's routes whose steps MLflow stores as traces."""
