"""`serve`: the models of a pool that Podium serves itself, until Ctrl-C."""

from __future__ import annotations

import time
from argparse import Namespace, _SubParsersAction
from typing import Any

from ops.config import load_pool, pool_file
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from ops.local_models.vllm_server import is_up, serving

_LOOK_S = 5.0


def add(commands: _SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = commands.add_parser("serve", help="serve a pool's own models with vLLM, until Ctrl-C")
    parser.add_argument("--pool", default="local-llm", help="a file in config/pools, without .yaml")
    parser.set_defaults(run=_serve)


def _serve(workspace: Workspace, arguments: Namespace) -> None:
    pool = load_pool(workspace.config, arguments.pool)
    served = [worker for worker in pool.workers if worker.serve]
    if not served:
        raise ConfigError(
            pool_file(workspace.config, arguments.pool), "workers", "none of them has a serve section",
            "Give one to the worker whose model Podium is to serve",
        )  # fmt: skip
    print(f"starting {', '.join(worker.name for worker in served)}: a minute on a CPU …", flush=True)
    try:
        with serving(pool, workspace):
            for worker in served:
                print(f"{worker.name}: {worker.model.partition('/')[2]} at {worker.api_base}", flush=True)
            print("Ctrl-C ends it.", flush=True)
            while all(is_up(worker) for worker in served):
                time.sleep(_LOOK_S)
            print("a server has ended; its log is in .podium/vllm")
    except KeyboardInterrupt:
        print("stopped")
