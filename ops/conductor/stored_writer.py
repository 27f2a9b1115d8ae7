"""Keep the completions of a policy in the store, so that no completion is generated twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ops.conductor.policy import policy_key
from ops.config import digest
from ops.core.errors import DataError
from ops.core.messages import Message
from ops.store import ComputedValue, Kind, ValueStore, open_backend
from ops.workflow.prompt import PromptTooLongError


class Writer(Protocol):
    """The interface of an object that writes completions, such as `ops.conductor.policy.Conductor`."""

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = ...,
        seed: int = ...,
    ) -> list[str]:
        """Return one completion for each prompt, in the order of the prompts."""
        ...


class StoredWriter:
    """A writer that generates only completions that are not in the store yet, and stores each new one before its use.

    A completion is identified by the policy (`policy_id`), the prompt, the temperature and, if the temperature is not
    0, the seed, which is the recipe's seed plus the sample index. Any number of threads and processes may use the store
    in `folder`. Only one of them generates a given completion. Raises the errors of `ValueStore`.
    """

    def __init__(self, writer: Writer, policy: str, folder: Path) -> None:
        self._writer, self._policy = writer, policy
        self._store = ValueStore(open_backend(folder), Kind.COMPLETION, _as_text)

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        """Return one completion for each prompt, in the order of the prompts.

        Raises the errors of the writer. The `index` of a `PromptTooLongError` is the position in `prompts`.
        """
        keys = [self._key(prompt, temperature, seed) for prompt in prompts]
        first = {key: index for index, key in reversed([*enumerate(keys)])}  # equal prompts share one completion

        def generate(missing: list[str]) -> Mapping[str, ComputedValue[str]]:
            indices = [first[key] for key in missing]
            try:
                texts = self._writer.write([prompts[index] for index in indices], temperature=temperature, seed=seed)
            except PromptTooLongError as error:
                raise PromptTooLongError(error.where, error.tokens, error.limit, index=indices[error.index]) from None
            return {key: ComputedValue(text, text) for key, text in zip(missing, texts, strict=True)}

        stored = self._store.get_or_compute(keys, generate)
        return [stored[key] for key in keys]

    def close(self) -> None:
        """Close the store, but not the writer."""
        self._store.close()

    def _key(self, prompt: Sequence[Message], temperature: float, seed: int) -> str:
        material = [self._policy, prompt, temperature, seed if temperature else 0]
        return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def policy_id(folder: Path) -> str:
    """Return a hash that identifies the weights and the card of a policy.

    It covers the policy's key and the name, size and modification time of each file. A policy that was trained again
    has the same key but another hash. Raises `DataError` if the folder does not exist.
    """
    if not folder.is_dir():
        problem = "holds no policy: none was trained with these settings, or it was moved away"
        raise DataError(folder, "", problem, "Train it (`podium train RECIPE`), or put it back")
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    facts = [(file.name, stat.st_size, stat.st_mtime_ns) for file in files if (stat := file.stat())]
    return digest([policy_key(folder), facts])
