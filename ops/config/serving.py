"""How the champion is served: what `config/serving.yaml` may say."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ops.config.base import PoolName, Settings
from ops.config.loading import load_or_default


class Serving(Settings):
    """Limits of the server, and what a request may have that says nothing else."""

    pool: PoolName | None = None
    """A pool of `config/pools` ("NAME" or "NAME:VARIANT") that is asked instead of the one that the champion was
    released with: other endpoints or prices, or some of its workers. Workers are known by name."""
    budget_usd: float = Field(default=1.0, ge=0)
    """USD that one request may spend on calls; it may ask for less, not for more."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds from a request's admission to its answer; it may ask for less, not for more."""
    month_usd: float | None = Field(default=None, ge=0)
    """USD that all requests of a calendar month (UTC) may spend together, over all servers that share the ledger."""
    at_once: int = Field(default=256, ge=1)
    """Requests that are worked on at once."""
    waiting: int = Field(default=256, ge=0)
    """Requests that wait for a place; further ones are refused with 429."""
    batch: int = Field(default=64, ge=1)
    """Questions whose workflows are written at once, at most."""
    threads: int = Field(default=1, ge=1)
    """CPU threads with which a policy writes that lies in this process. More than one pays for models of hundreds of
    millions of parameters on cores that are idle otherwise; where others use them as well, threads wait for each other
    far longer than they write."""
    attempts: int = Field(default=3, ge=1)
    """Completions tried for a workflow: a greedy one, then sampled ones."""
    rewrites: int = Field(default=1, ge=0)
    """How often the Conductor is asked for another workflow without the workers that failed; then the best of the
    remaining workers is asked alone."""
    follow_s: float = Field(default=5.0, gt=0)
    """Seconds between looks at the alias `champion`."""
    drain_s: float = Field(default=30.0, ge=0)
    """Seconds that requests in flight are given when the server is told to end."""
    stalled_s: float = Field(default=180.0, gt=0)
    """Seconds after which `/health` is 503 because the Conductor has written nothing although requests wait for it."""
    keep_alive_s: float = Field(default=15.0, gt=0)
    """Seconds of silence after which a stream gets a comment, so that no proxy closes it."""
    request_bytes: int = Field(default=1_000_000, ge=1000)
    """Bytes of a request's body; a longer one is refused with 413."""
    held_bytes: int = Field(default=256_000_000, ge=1000)
    """Bytes of all requests' bodies together; a request that would exceed them is refused with 429."""
    head_s: float = Field(default=15.0, gt=0)
    """Seconds in which a client must send the headers of a request, from its connection or their first byte."""
    body_s: float = Field(default=60.0, gt=0)
    """Seconds in which a client must send a request's body."""
    connections: int | None = Field(default=None, ge=1)
    """Open connections of clients; null: as many as the limit of open files allows, at most 20,000. Beyond them the
    connection that has been idle for longest is closed; while none is idle, new ones are refused with 503."""
    traced_share: float = Field(default=1.0, ge=0, le=1)
    """Share of the requests to OpenAI's routes whose steps MLflow keeps as traces."""


def load_serving(config: Path) -> Serving:
    """`config/serving.yaml`; the defaults where there is none. Raises `ConfigError`."""
    return load_or_default(Serving, config / "serving.yaml")
