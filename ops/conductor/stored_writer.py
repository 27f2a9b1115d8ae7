"""Completions of a policy in one SQLite file beside the response cache, so that no text is generated twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ops.conductor.policy import policy_key
from ops.config import digest
from ops.core.response import Message
from ops.core.value_store import ValueStore
from ops.workflow.prompt import PromptTooLongError

NAME = "completions.sqlite"


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
    which is the recipe's seed plus the sample index. Any number of threads and processes may use one file
    (`ValueStore`): what is damaged in it is generated again. Raises `DataError` for a file that cannot be used now.
    """

    def __init__(self, writer: Writer, policy: str, folder: Path) -> None:
        self._writer, self._policy = writer, policy
        self._store = ValueStore(folder / NAME)

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        """Return one completion per prompt, in order. Raises the writer's errors; `PromptTooLongError` has the index
        in `prompts`."""
        keys = [self._key(prompt, temperature, seed) for prompt in prompts]
        stored = {key: json.loads(text) for key, text in self._store.get(keys).items()}
        new = {key: index for index, key in reversed([*enumerate(keys)]) if key not in stored}
        if indices := sorted(new.values()):  # equal prompts have one completion
            try:
                texts = self._writer.write([prompts[index] for index in indices], temperature=temperature, seed=seed)
            except PromptTooLongError as error:
                raise PromptTooLongError(error.where, error.tokens, error.limit, index=indices[error.index]) from None
            # As JSON, which can hold half a character.
            made = {keys[index]: json.dumps(text) for index, text in zip(indices, texts, strict=True)}
            stored |= {key: json.loads(text) for key, text in self._store.put(made).items()}
        return [stored[key] for key in keys]

    def close(self) -> None:
        """Close the file; the writer stays open."""
        self._store.close()

    def _key(self, prompt: Sequence[Message], temperature: float, seed: int) -> str:
        material = [self._policy, prompt, temperature, seed if temperature else 0]
        return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


def policy_id(folder: Path) -> str:
    """Return the identity of a policy's weights and card: its key, and name, size and time of each of its files.

    Weights that were trained again have the same key, and another identity.
    """
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    facts = [(file.name, stat.st_size, stat.st_mtime_ns) for file in files if (stat := file.stat())]
    return digest([policy_key(folder), facts])
