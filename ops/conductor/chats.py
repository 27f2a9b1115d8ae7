"""Encode chats as a policy's tokens and decode its completions.

This needs the tokenizer of the policy but not its weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.conductor.policy import (
    Completion,
    PolicyCard,
    TextWriter,
    check_prompt_lengths,
    context_length,
    find_end_tokens,
    is_chat_within,
    locate_weights,
    render_chat,
)
from ops.conductor.scratch_tokenizer import ScratchTokenizer
from ops.core.messages import Message


def prompt_seed(seed: int, prompt: Sequence[int]) -> int:
    """Return the seed with which the completion of one prompt is sampled.

    It depends on `seed` and on the tokens of the prompt, but not on its batch. With one seed for all prompts, all
    questions would use the same random numbers.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {list(prompt)}".encode()).digest()[:4], "big") >> 1


@dataclass(frozen=True)
class ChatCodec:
    """Encodes the chats and decodes the completions of a policy whose weights are elsewhere."""

    card: PolicyCard
    """The policy's card."""
    tokenizer: Any
    """The policy's tokenizer, which has the interface of a transformers tokenizer."""
    end_tokens: tuple[int, ...]
    """The ids of the tokens that end a completion."""
    context: int | None
    """The length of the longest sequence in tokens, or None if it is unknown."""

    @classmethod
    def load(cls, folder: Path, card: PolicyCard | None = None) -> ChatCodec:
        """Load the tokenizer of the policy in `folder`; `card` replaces the card there. Raises `DataError`."""
        card = card or PolicyCard.read(folder)
        place, given = locate_weights(folder, card)
        own = ScratchTokenizer.read(folder) if card.pretrained is None else None
        if own is not None:
            return cls(card, own, tuple(find_end_tokens(own.declared_ends, own)), own.context)
        from transformers import AutoConfig, AutoTokenizer, GenerationConfig

        config = AutoConfig.from_pretrained(place, **given)
        try:
            declared = GenerationConfig.from_pretrained(place, **given)
        except OSError:  # transformers treats a model without this file in the same way
            declared = GenerationConfig.from_model_config(config)
        tokenizer = AutoTokenizer.from_pretrained(place, **given)
        return cls(card, tokenizer, tuple(find_end_tokens(declared.eos_token_id, tokenizer)), context_length(config))

    def encode_prompts(self, chats: Sequence[Sequence[Message]], completion_tokens: int) -> list[list[int]]:
        """Return the tokens of each chat.

        Raises `PromptTooLongError` if a chat leaves no room for `completion_tokens` more tokens.
        """
        texts = [render_chat(self.tokenizer, chat) for chat in chats]
        tokens: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        check_prompt_lengths([len(prompt) for prompt in tokens], completion_tokens, self.context)
        return tokens

    @property
    def prompt_limit(self) -> int | None:
        """Return the largest number of tokens of a chat that leaves room for a completion, or None if it is unknown."""
        return None if self.context is None else self.context - self.card.max_completion_tokens

    def has_room(self, chat: Sequence[Message]) -> bool:
        """Return whether a chat has at most `prompt_limit` tokens."""
        return is_chat_within(self.tokenizer, chat, self.prompt_limit)

    def decode_completions(
        self, prompts: Sequence[Sequence[int]], written: Sequence[Sequence[int]]
    ) -> list[Completion]:
        """Return the completion of each prompt, whose text does not contain the token that ended it."""
        return [
            Completion(
                text=str(self.tokenizer.decode(tokens, skip_special_tokens=True)),
                is_ended=len(tokens) > 0 and tokens[-1] in self.end_tokens,
                prompt_tokens=len(prompt),
                tokens=len(tokens),
            )
            for prompt, tokens in zip(prompts, written, strict=True)
        ]

    def sampling_request(
        self, prompt: Sequence[int], temperature: float, seed: int, completion_tokens: int
    ) -> dict[str, Any]:
        """Return the sampling parameters of one completion under the names that vLLM uses.

        Every parameter is given explicitly, so that the defaults of a server never apply.
        """
        drawn = self.card.generation
        return {
            "temperature": temperature,
            "top_p": drawn.top_p,
            "top_k": drawn.top_k,
            "min_p": drawn.min_p or 0.0,
            "repetition_penalty": drawn.repetition_penalty,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": prompt_seed(seed, prompt),
            "max_tokens": completion_tokens,
            "stop_token_ids": list(self.end_tokens),
        }


class ChatWriter(TextWriter):
    """A base class for Conductors that encode their prompts with a `ChatCodec`."""

    def __init__(self, chats: ChatCodec) -> None:
        self._chats, self.card = chats, chats.card

    @property
    def prompt_limit(self) -> int | None:
        """Return the largest number of tokens of a chat that leaves room for a completion, or None if it is unknown."""
        return self._chats.prompt_limit

    def has_room(self, prompt: Sequence[Message]) -> bool:
        """Return whether a prompt leaves room for a completion in the model's context."""
        return self._chats.has_room(prompt)
