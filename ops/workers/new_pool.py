"""Create the file of a pool from LiteLLM model names."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from ops.config import Pool, Price, Worker, pool_file
from ops.core.atomic import write_text
from ops.core.errors import ConfigError
from ops.workers.pool_checks import find_unsent_settings
from ops.workers.providers import find_price, import_litellm

_OMITTED_VALUES = {"temperature": None}
"""Settings with a default that some models refuse, each with the value for which it is not sent."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def create_pool(config: Path, name: str, models: Sequence[str], api_base: str | None, price: Price | None) -> Pool:
    """Write `config/pools/NAME.yaml` with one worker for each model, and return the pool.

    `price` is used for models whose price LiteLLM does not know. A setting that a model refuses is left out. Raises
    `ConfigError` if the file exists, the provider is unknown or a model has no price; nothing is written then.
    """
    file = pool_file(config, name)
    if file.exists():
        raise ConfigError(file, "", "exists", "Choose another name, or edit it")
    workers = [_make_worker(file, model, api_base, price) for model in models]
    pool = Pool(name=name, workers=tuple(workers))
    values = {"name": name, "workers": [_non_default_fields(worker) for worker in workers]}
    write_text(file, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    return pool


def _make_worker(file: Path, model: str, api_base: str | None, price: Price | None) -> Worker:
    name = _NO_NAME.sub("-", model.rpartition("/")[2]).strip("-.") or "worker"
    worker = Worker(name=name, model=model, api_base=api_base, api_key_env=_key_variable(file, model, api_base))
    for error in find_unsent_settings(worker.model_copy(update={"price": price}), file):
        field = error.field.rpartition(".")[2]
        if field not in _OMITTED_VALUES:
            raise error
        worker = worker.model_copy(update={field: _OMITTED_VALUES[field]})
    try:
        find_price(worker, file)
    except ConfigError as error:
        if price is None:
            raise ConfigError(file, error.field, error.problem, "Give it with --price INPUT/OUTPUT") from None
        worker = worker.model_copy(update={"price": price})
    return worker


def _key_variable(file: Path, model: str, api_base: str | None) -> str | None:
    """Return the name of the environment variable with the provider's key; None for one's own server.

    Raises `ConfigError` if LiteLLM does not know the provider.
    """
    library = import_litellm()
    try:
        provider = str(library.get_llm_provider(model)[1])
    except library.exceptions.BadRequestError:
        problem = f"{model!r} does not begin with a provider that LiteLLM knows"
        raise ConfigError(file, "workers", problem, "Write provider/model, for example openai/gpt-6-luna") from None
    variable = f"{provider.upper()}_API_KEY"
    wanted = library.validate_environment(model)["missing_keys"]
    return variable if api_base is None and (variable in wanted or variable in os.environ) else None


def _non_default_fields(worker: Worker) -> dict[str, object]:
    """Return the fields of a worker that differ from their defaults, in order."""
    return worker.model_dump(mode="json", exclude_defaults=True)
