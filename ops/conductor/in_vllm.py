"""A Conductor that writes by vLLM in this process: thousands of completions side by side on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ops.conductor.chats import Chats
from ops.conductor.policy import PolicyCard, precision, weights
from ops.core.errors import ConfigError
from ops.core.installation import install_extra
from ops.core.response import Message

LONGEST = -1
"""For vLLM: what the model was made for, or the less that fits into the GPU."""
SHARE = 0.9
"""Of the GPU: weights, work, and for the rest a cache. The training, which had its own share, has ended."""
GRACE_S = 30.0
"""How long an engine may take to end."""


class VllmConductor:
    """A policy that writes workflows by vLLM."""

    def __init__(self, engine: Any, chats: Chats) -> None:
        self._engine, self._chats, self.card = engine, chats, chats.card

    @classmethod
    def load(cls, folder: Path, setting: str) -> VllmConductor:
        """Start an engine with the policy in `folder`, in its own precision.

        Raises `DataError`, and `ConfigError` that names `setting` where vLLM is not installed or cannot read it.
        """
        chats = Chats.load(folder)
        place, given = weights(folder, chats.card)
        if "gguf_file" in given:
            problem = f"vLLM cannot write for {place}: its weights are in GGUF"
            raise ConfigError(_recipe(chats.card), setting, problem, "Write `transformers`")
        try:
            from vllm import LLM
        except ImportError:
            remedy = f"Run where the GPUs are: {install_extra('gpu')}; or write `transformers`"
            raise ConfigError(_recipe(chats.card), setting, "is vllm, which is not installed here", remedy) from None
        from torch import cuda

        engine = LLM(
            model=place,
            revision=given.get("revision"),
            dtype=precision(chats.card) or _stored(place, given),
            max_model_len=LONGEST,
            # As in `ops.local_models.vllm_server`: not on a CPU, where it ends vLLM 0.32. None: as the model can.
            enable_chunked_prefill=None if cuda.is_available() else False,
            gpu_memory_utilization=SHARE,
            generation_config="vllm",
            disable_log_stats=True,
        )
        lengths = [chats.context, int(engine.llm_engine.model_config.max_model_len)]
        return cls(engine, replace(chats, context=min(length for length in lengths if length)))

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> list[str]:
        """As `Conductor.write`."""
        from vllm import SamplingParams, TokensPrompt

        longest = max_tokens or self.card.max_completion_tokens
        tokens = self._chats.prompts(prompts, longest)
        drawing = [
            SamplingParams(**self._chats.drawing(prompt, temperature, seed, longest), detokenize=False)
            for prompt in tokens
        ]
        asked = [TokensPrompt(prompt_token_ids=prompt) for prompt in tokens]
        written = self._engine.generate(asked, drawing, use_tqdm=False) if asked else []
        return self._chats.texts([each.outputs[0].token_ids for each in written])

    def fits(self, prompt: Sequence[Message]) -> bool:
        """As `Conductor.fits`."""
        return self._chats.fits(prompt)

    def close(self) -> None:
        """End the engine and free its GPU."""
        self._engine.llm_engine.engine_core.shutdown(timeout=GRACE_S)


def _stored(place: str, given: dict[str, str]) -> Any:
    """The type in which weights lie: vLLM's own "auto" would make half precision of float32."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(place, **given).dtype or "auto"


def _recipe(card: PolicyCard) -> str:
    return f"recipe {card.recipe!r}"
