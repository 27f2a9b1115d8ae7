"""Settings of operations: `config/promotion.yaml`, `retraining.yaml` and `serving.yaml`."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import DAY_S, PoolName, Settings
from ops.config.pool import Pool
from ops.config.recipe import Vote


class PromotionGate(Settings):
    """The conditions under which a challenger becomes champion."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Two-sided confidence of all interim analyses against one champion together: a challenger that is worse than a
    bound below allows is promoted with a probability of at most (1 - confidence) / 2, for any number of challengers."""
    planned_analyses: int | None = Field(default=None, ge=1)
    """Number of challengers to be judged against one champion: each gets the same part of that probability, and later
    ones are refused. None: analysis k gets 1/(k·(k+1)) of it, and the number is unlimited."""
    min_gain_over_best_worker: float = Field(default=0.0, ge=-1, le=1)
    """Accuracy (0–1) by which the mean must exceed the best single worker's: lower end of the score interval."""
    max_loss_against_champion: float = Field(default=0.01, ge=0)
    """The score interval's lower end against the champion may not fall below minus this."""
    max_benchmark_loss: float = Field(default=0.05, ge=0)
    """No benchmark may be worse than the champion's by more than this."""
    max_cost_ratio: float = Field(default=1.5, gt=0)
    """USD per question against the champion's."""
    max_latency_ratio: float = Field(default=1.5, gt=0)
    """Mean seconds per question along the critical path against the champion's."""
    max_p95_latency_ratio: float | None = Field(default=None, gt=0)
    """95th percentile of the seconds of an answer against the champion's. None: it is shown and not checked."""
    min_format_compliance: float = Field(default=0.95, ge=0, le=1)
    min_judge_agreement: float = Field(default=0.8, ge=0, le=1)
    """Of a benchmark that a judge grades: the share of right answers that it accepts, and of wrong ones that it
    rejects, on labelled answers; lower end of the 95 % interval. Not measured: kept back."""
    min_paired_share: float = Field(default=0.9, gt=0, le=1)
    """Share of the other side's questions that both scored; below it the two cannot be compared."""


class Drift(Settings):
    """Questions that are asked again every night, to detect whether a worker or the champion has changed."""

    questions: int = Field(default=48, ge=1)
    """Number of questions to every worker, and to the champion, in one night."""
    false_alarms: float = Field(default=0.01, gt=0, lt=0.5)
    """Probability that an unchanged worker, or an unchanged champion, is reported as changed within 365 nights."""


class Retraining(Settings):
    """The reaction to a change of the pool. The gate's settings are in `config/promotion.yaml`."""

    settle_s: float = Field(default=60.0, ge=0, le=DAY_S)
    """Seconds for which the pool's files must be unchanged before anything starts, so that several edits are one
    change."""
    budget_usd: float = Field(default=5.0, ge=0)
    """USD (workers' calls) up to which the sensor starts a plan automatically; a more expensive plan needs approval."""
    min_oracle_rise: float = Field(default=0.02, ge=0, le=1)
    """Accuracy (0-1) that the choice of the best worker for each training problem must gain, at the interval's lower
    end, for a new worker to pay for fine-tuning. The choice is judged on answers that took no part in it."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Confidence of the two-sided intervals that decide whether a new worker pays."""
    drift: Drift = Drift()


class PoolChange(Settings):
    """A change of the champion's pool, with the pool that was handled last."""

    version: str
    """The champion's version in the registry."""
    policy: str
    """The key of its policy."""
    before: Pool


class Serving(Settings):
    """Limits of the server, and defaults of requests."""

    pool: PoolName | None = None
    """A pool of `config/pools` ("NAME" or "NAME:VARIANT") to use instead of the one released with the champion: other
    endpoints or prices, or some of its workers. Workers are identified by name."""
    budget_usd: float = Field(default=1.0, ge=0)
    """USD that one request may spend on calls; a request may set a lower value, not a higher one."""
    deadline_s: float = Field(default=600.0, gt=0, le=DAY_S)
    """Seconds from a request's admission to its answer; a request may set a lower value, not a higher one."""
    month_usd: float | None = Field(default=None, ge=0)
    """USD that all requests of a calendar month (UTC) may spend together, over all servers that share the ledger."""
    at_once: int = Field(default=256, ge=1, le=100_000)
    """Requests that are processed at once."""
    waiting: int = Field(default=256, ge=0, le=100_000)
    """Requests that wait for a place; further ones are refused with 429."""
    batch: int = Field(default=64, ge=1, le=10_000)
    """Questions whose workflows are written at once, at most."""
    threads: int = Field(default=1, ge=1, le=1024)
    """CPU threads of a policy that generates in this process. More than one pays for models of hundreds of millions of
    parameters on otherwise idle cores; on busy cores, threads wait for each other longer than they compute."""
    attempts: int = Field(default=3, ge=1, le=10)
    """Number of completions to try for a workflow: a greedy one, then sampled ones."""
    rewrites: int = Field(default=1, ge=0, le=10)
    """How often the Conductor may write another workflow without the workers that failed, before the best of the
    remaining workers is called alone."""
    vote: Vote = Vote()
    """How many workflows answer a request that does not say it. One answers where the answer may have any form (grader
    `open`), because such answers cannot be compared."""
    follow_s: float = Field(default=5.0, gt=0, le=DAY_S)
    """Seconds between checks of the alias `champion`."""
    drain_s: float = Field(default=30.0, ge=0, le=DAY_S)
    """Seconds that requests in flight may take to finish when the server is stopped."""
    stalled_s: float = Field(default=180.0, gt=0, le=DAY_S)
    """Seconds without a finished batch, while requests wait for it, after which `/health` is 503."""
    keep_alive_s: float = Field(default=15.0, gt=0, le=DAY_S)
    """Seconds of silence after which a stream gets a comment, so that no proxy closes it."""
    request_bytes: int = Field(default=1_000_000, ge=1000)
    """Bytes of a request's body; a longer one is refused with 413."""
    held_bytes: int = Field(default=256_000_000, ge=1000)
    """Bytes of all requests' bodies together; a request that would exceed them is refused with 429."""
    head_s: float = Field(default=15.0, gt=0, le=DAY_S)
    """Seconds in which a client must send the headers of a request, from its connection or their first byte."""
    body_s: float = Field(default=60.0, gt=0, le=DAY_S)
    """Seconds in which a client must send a request's body."""
    connections: int | None = Field(default=None, ge=1)
    """Open connections of clients; null: as many as the limit of open files allows, at most 20,000. Beyond them the
    connection that has been idle for longest is closed; while none is idle, new ones are refused with 503."""
    traced_share: float = Field(default=1.0, ge=0, le=1)
    """Share of the requests to OpenAI's routes whose steps MLflow stores as traces."""
