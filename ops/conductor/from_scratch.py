"""A Conductor made from scratch that generates in this process with NumPy (see `ops.conductor.decoder`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ops.conductor.chats import ChatCodec, ChatWriter, prompt_seed
from ops.conductor.decoder import Decoder, DecoderShape, Floats, Integers, softmax
from ops.conductor.policy import Completion, PolicyCard
from ops.conductor.scratch_tokenizer import ScratchTokenizer
from ops.config import Generation
from ops.core.messages import Message


class ScratchConductor(ChatWriter):
    """A small policy with its own tokenizer. Several threads may use it at the same time."""

    def __init__(self, decoder: Decoder, chats: ChatCodec) -> None:
        super().__init__(chats)
        self._decoder = decoder

    @classmethod
    def load(cls, folder: Path, card: PolicyCard) -> ScratchConductor | None:
        """Load the policy in `folder`, or return None if it is of another kind. Raises `DataError`."""
        if card.pretrained is not None or (shape := DecoderShape.read(folder)) is None:
            return None
        chats = ChatCodec.load(folder, card)
        return cls(Decoder.load(folder, shape), chats) if isinstance(chats.tokenizer, ScratchTokenizer) else None

    def _complete(
        self, prompts: Sequence[Sequence[Message]], temperature: float, seed: int, longest: int
    ) -> list[Completion]:
        tokens = self._chats.encode_prompts(prompts, longest)
        choose = TokenSampler(
            self.card.generation, temperature, tokens, [prompt_seed(seed, prompt) for prompt in tokens]
        )
        return self._chats.decode_completions(
            tokens, self._decoder.generate(tokens, longest, self._chats.end_tokens, choose)
        )

    def close(self) -> None:
        """Do nothing, because the memory is freed with the object."""


class TokenSampler:
    """Samples the next token of each sequence according to the sampling settings of the policy's card.

    The settings have the same meaning as in transformers. Each sequence has its own seed, so that its tokens do not
    depend on the other sequences of the batch.
    """

    def __init__(
        self, drawn: Generation, temperature: float, prompts: Sequence[Sequence[int]], seeds: Sequence[int]
    ) -> None:
        self._drawn, self._temperature = drawn, temperature
        self._prompts = prompts
        self._random = [np.random.default_rng(each) for each in seeds] if temperature > 0 else []
        self._seen: npt.NDArray[np.bool_] | None = None

    def __call__(self, logits: Floats, numbers: Integers) -> Integers:
        """Return the next token of each sequence.

        `logits` has a row for each sequence and a column for each token, and `numbers` has the positions of these
        sequences among the prompts.
        """
        if self._drawn.repetition_penalty != 1:
            logits = self._apply_repetition_penalty(logits, numbers)
        if self._temperature > 0:
            heights = np.array([self._random[number].random() for number in numbers.tolist()])
            sums = np.cumsum(self.probabilities(logits), axis=1, dtype=np.float64)
            chosen: Integers = (sums <= heights[:, None] * sums[:, -1:]).sum(axis=1)
        else:
            chosen = logits.argmax(axis=1)
        if self._seen is not None:
            self._seen[numbers, chosen] = True
        return chosen

    def probabilities(self, logits: Floats) -> Floats:
        """Return the distribution from which the token of each sequence is sampled, with the shape of `logits`."""
        drawn, scores = self._drawn, logits / np.float32(self._temperature)
        if 0 < drawn.top_k < scores.shape[1]:
            least = np.partition(scores, -drawn.top_k, axis=1)[:, -drawn.top_k, None]
            scores[scores < least] = -np.inf
        if drawn.top_p < 1:
            order = scores.argsort(axis=1, kind="stable")
            unlikely = np.cumsum(np.take_along_axis(softmax(scores.copy()), order, axis=1), axis=1) <= 1 - drawn.top_p
            unlikely[:, -1] = False
            dropped = np.empty_like(unlikely)
            np.put_along_axis(dropped, order, unlikely, axis=1)
            scores[dropped] = -np.inf
        if drawn.min_p is not None:
            shares = softmax(scores.copy())
            scores[shares < drawn.min_p * shares.max(axis=1, keepdims=True)] = -np.inf
        return softmax(scores)

    def _apply_repetition_penalty(self, logits: Floats, numbers: Integers) -> Floats:
        if self._seen is None:
            self._seen = np.zeros((len(self._prompts), logits.shape[1]), dtype=np.bool_)
            for seen, prompt in zip(self._seen, self._prompts, strict=True):
                seen[list(prompt)] = True
        penalty = np.float32(self._drawn.repetition_penalty)
        return np.where(self._seen[numbers], np.where(logits < 0, logits * penalty, logits / penalty), logits)
