"""Completions of a policy in the store, so that no text is generated twice."""

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
    """A writer of completions: `ops.conductor.policy.Conductor`, or a fixed text in a test."""

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = ...,
        seed: int = ...,
    ) -> list[str]:
        """Return one completion per prompt, in order."""
        ...


class StoredWriter:
    """A writer that stores each completion before it is used, and generates only those that are not stored.

    The key of a completion is the policy (`policy_id`), the prompt, the temperature and, unless it is 0, the seed,
    which is the recipe's seed plus the sample index. Any number of threads and processes may use the store in `folder`;
    one of them at a time generates a completion. Raises the errors of `ValueStore`.
    """

    def __init__(self, writer: Writer, policy: str, folder: Path) -> None:
        self._writer, self._policy = writer, policy
        self._store = ValueStore(open_backend(folder), Kind.COMPLETION, _as_text)

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        """Return one completion per prompt, in order. Raises the writer's errors; `PromptTooLongError` has the index
        in `prompts`."""
        keys = [self._key(prompt, temperature, seed) for prompt in prompts]
        first = {key: index for index, key in reversed([*enumerate(keys)])}  # equal prompts have one completion

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
        """Close the store; the writer stays open."""
        self._store.close()

    def _key(self, prompt: Sequence[Message], temperature: float, seed: int) -> str:
        material = [self._policy, prompt, temperature, seed if temperature else 0]
        return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def policy_id(folder: Path) -> str:
    """Return the identity of a policy's weights and card: its key, and name, size and time of each of its files.

    Weights that were trained again have the same key, and another identity. Raises `DataError` if there is no policy.
    """
    if not folder.is_dir():
        problem = "holds no policy: none was trained with these settings, or it was moved away"
        raise DataError(folder, "", problem, "Train it (`podium train RECIPE`), or put it back")
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    facts = [(file.name, stat.st_size, stat.st_mtime_ns) for file in files if (stat := file.stat())]
    return digest([policy_key(folder), facts])
