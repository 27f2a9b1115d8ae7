"""Generate with a small Qwen2 model in NumPy, with a cache of keys and values and without torch.

This serves policies made from scratch, which have float32 weights, as many heads for keys as for queries, and plain
rotary positions. For such a small model, one core generates several times faster than through torch, because the
overhead of torch's calls is larger than their arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
"""An array of 32-bit floating-point numbers."""
Integers = npt.NDArray[np.int64]
"""An array of 64-bit integers."""
ChooseTokens = Callable[[Floats, Integers], Integers]
"""A function that maps logits (sequences × vocabulary) and the positions of these sequences among the prompts to the
next token of each sequence."""
WEIGHTS_FILE = "model.safetensors"
"""The name of the file with the weights in a policy's folder."""
MAX_WEIGHT_BYTES = 64 * 2**20
"""The largest size of the weights in bytes for which this decoder is used. Larger models are faster with torch, whose
matrix products run on all cores or on a GPU."""
PREFILL_TOKENS = 1024
"""The number of prompt tokens that are processed in one batch. It is small enough for their activations to stay in the
cache of a core."""
_SUPPORTED_CONFIG = {
    "model_type": "qwen2", "hidden_act": "silu", "tie_word_embeddings": True, "use_sliding_window": False,
    "dtype": "float32",
}  # fmt: skip


@dataclass(frozen=True)
class DecoderShape:
    """The architecture of a model that `Decoder` can run."""

    hidden: int
    """The size of the hidden state."""
    layers: int
    """The number of layers."""
    heads: int
    """The number of attention heads."""
    context: int
    """The length of the longest sequence in tokens."""
    epsilon: float
    """The constant that RMS normalization adds to the mean square."""
    rope_theta: float
    """The base of the frequencies of the rotary position embedding."""

    @classmethod
    def read(cls, folder: Path) -> DecoderShape | None:
        """Return the shape of the model in `folder`, or None if `Decoder` does not support its architecture or size."""
        try:
            declared: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            size = (folder / WEIGHTS_FILE).stat().st_size
        except (OSError, ValueError):
            return None
        rope = declared.get("rope_parameters") or {}
        plain = all(declared.get(name) == value for name, value in _SUPPORTED_CONFIG.items())
        plain = plain and rope.get("rope_type") == "default" and "quantization_config" not in declared
        if not plain or size > MAX_WEIGHT_BYTES or declared["num_key_value_heads"] != declared["num_attention_heads"]:
            return None
        return cls(
            hidden=declared["hidden_size"],
            layers=declared["num_hidden_layers"],
            heads=declared["num_attention_heads"],
            context=declared["max_position_embeddings"],
            epsilon=declared["rms_norm_eps"],
            rope_theta=rope["rope_theta"],
        )


@dataclass(frozen=True)
class _Layer:
    """The weights of one layer, transposed so that inputs are multiplied from the left."""

    attention_norm: Floats
    qkv: Floats
    qkv_bias: Floats
    out: Floats
    mlp_norm: Floats
    gate_up: Floats
    down: Floats


class Decoder:
    """A model in memory. Several threads may generate at the same time, because generation does not change it."""

    def __init__(self, shape: DecoderShape, tensors: dict[str, Floats]) -> None:
        self.shape = shape
        self._embedding = tensors["model.embed_tokens.weight"]
        self._norm = tensors["model.norm.weight"]
        self._layers = [_build_layer(tensors, f"model.layers.{index}.") for index in range(shape.layers)]
        self._width = shape.hidden // shape.heads
        frequencies = 1.0 / shape.rope_theta ** (np.arange(0, self._width, 2, dtype=np.float32) / self._width)
        angles = np.arange(shape.context, dtype=np.float32)[:, None] * frequencies.astype(np.float32)
        self._cos, self._sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        self._future = np.triu(np.full((shape.context, shape.context), -np.inf, dtype=np.float32), 1)

    @classmethod
    def load(cls, folder: Path, shape: DecoderShape) -> Decoder:
        """Load the weights in `folder`, which must have the given shape."""
        from safetensors.numpy import load_file

        return cls(shape, load_file(folder / WEIGHTS_FILE))

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int,
        end_tokens: Collection[int],
        choose_tokens: ChooseTokens,
    ) -> list[list[int]]:
        """Return the completion of each prompt as tokens.

        A completion ends with one of `end_tokens`, which it includes, or after `max_tokens` tokens. No prompt may be
        empty or longer than the context minus `max_tokens`.
        """
        written: list[list[int]] = [[] for _ in prompts]
        sequences = _Sequences(self.shape, prompts, max_tokens)
        logits = self._prefill(prompts, sequences)
        while True:
            tokens = choose_tokens(logits, sequences.prompt_indices)
            for number, token in zip(sequences.prompt_indices.tolist(), tokens.tolist(), strict=True):
                if not written[number] or written[number][-1] not in end_tokens:
                    written[number].append(token)
            open_ = [
                i
                for i, n in enumerate(sequences.prompt_indices.tolist())
                if not _has_ended(written[n], max_tokens, end_tokens)
            ]
            if not open_:
                return written
            if 2 * len(open_) <= len(tokens):  # copying the cache costs less than continuing ended sequences
                sequences.keep_rows(open_)
                tokens = tokens[open_]
            logits = self._decode_step(tokens, sequences)

    def _prefill(self, prompts: Sequence[Sequence[int]], sequences: _Sequences) -> Floats:
        """Cache the keys and values of the prompts, and return the logits after the last token of each prompt."""
        logits, first = [], 0
        while first < len(prompts):
            last, total = first + 1, len(prompts[first])
            while last < len(prompts) and total + len(prompts[last]) <= PREFILL_TOKENS:
                total, last = total + len(prompts[last]), last + 1
            logits.append(self._prefill_batch(prompts[first:last], first, sequences))
            first = last
        return np.concatenate(logits)

    def _prefill_batch(self, prompts: Sequence[Sequence[int]], first: int, sequences: _Sequences) -> Floats:
        lengths = [len(prompt) for prompt in prompts]
        stops = np.cumsum(lengths)
        spans = [slice(stop - length, stop) for stop, length in zip(stops.tolist(), lengths, strict=True)]

        def attend(layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
            final = layer == self.shape.layers - 1  # only the last token's output is used
            attended = np.empty((len(prompts) if final else len(q), *q.shape[1:]), dtype=np.float32)
            for place, (span, length) in enumerate(zip(spans, lengths, strict=True)):
                keys = sequences.keys[layer][first + place, :, :length]
                values = sequences.values[layer][first + place, :, :length]
                keys[:], values[:] = k[span].swapaxes(0, 1), v[span].swapaxes(0, 1)
                asking = q[span.stop - 1 : span.stop] if final else q[span]
                scores = asking.swapaxes(0, 1) @ keys.swapaxes(1, 2)
                if not final:
                    scores += self._future[:length, :length]
                target = attended[place : place + 1] if final else attended[span]
                target[:] = (softmax(scores) @ values).swapaxes(0, 1)
            return attended

        positions = np.concatenate([np.arange(length) for length in lengths])
        return self._logits(np.concatenate([np.asarray(prompt) for prompt in prompts]), positions, attend, stops - 1)

    def _decode_step(self, tokens: Integers, sequences: _Sequences) -> Floats:
        """Append one token to each sequence, and return the logits after this token."""
        rows, positions = np.arange(len(tokens)), sequences.lengths
        span = int(positions.max()) + 1
        unequal = int(positions.min()) + 1 < span
        beyond = np.where(np.arange(span) > positions[:, None], np.float32(-np.inf), np.float32(0))[:, None, None]

        def attend(layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
            keys, values = sequences.keys[layer], sequences.values[layer]
            keys[rows, :, positions], values[rows, :, positions] = k, v
            scores = q[:, :, None] @ keys[:, :, :span].swapaxes(2, 3)
            if unequal:
                scores += beyond
            return (softmax(scores) @ values[:, :, :span])[:, :, 0]

        logits = self._logits(tokens, positions, attend)
        sequences.lengths = positions + 1
        return logits

    def _logits(
        self,
        tokens: Integers,
        positions: Integers,
        attend: Callable[[int, Floats, Floats, Floats], Floats],
        final: Integers | None = None,
    ) -> Floats:
        """Return the logits after each token, or only after the tokens at the positions `final`.

        `attend(layer, queries, keys, values)` takes arrays of shape (tokens, heads, head size), and returns the
        attention output of each token. If `final` is given, it returns in the last layer only the output of the tokens
        at these positions.
        """
        heads, hidden, half = self.shape.heads, self.shape.hidden, self._width // 2
        x, cos, sin = self._embedding[tokens], self._cos[positions], self._sin[positions]
        for index, layer in enumerate(self._layers):
            qkv = self._rms_norm(x, layer.attention_norm) @ layer.qkv
            qkv += layer.qkv_bias
            plain = qkv[:, : 2 * hidden].reshape(len(qkv), 2 * heads, self._width)
            first, second = plain[..., :half], plain[..., half:]
            turned = np.empty_like(plain)
            turned[..., :half] = first * cos - second * sin
            turned[..., half:] = second * cos + first * sin
            value = qkv[:, 2 * hidden :].reshape(len(qkv), heads, self._width)
            queries = turned[:, :heads] * np.float32(self._width**-0.5)
            attended = attend(index, queries, turned[:, heads:], value)
            if final is not None and index == len(self._layers) - 1:
                x = x[final]
            x = x + attended.reshape(len(attended), hidden) @ layer.out
            gate, up = np.split(self._rms_norm(x, layer.mlp_norm) @ layer.gate_up, 2, axis=1)
            x = x + (_silu(gate) * up) @ layer.down
        return self._rms_norm(x, self._norm) @ self._embedding.T

    def _rms_norm(self, x: Floats, weight: Floats) -> Floats:
        mean = np.einsum("nd,nd->n", x, x)[:, None] * np.float32(1 / x.shape[1])
        normed: Floats = x * (1 / np.sqrt(mean + np.float32(self.shape.epsilon))) * weight
        return normed


class _Sequences:
    """The unfinished sequences, with the cached keys and values of their tokens for each layer."""

    def __init__(self, shape: DecoderShape, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
        self.lengths = np.array([len(prompt) for prompt in prompts])
        self.prompt_indices = np.arange(len(prompts))
        """The positions of these sequences among all prompts."""
        size = (len(prompts), shape.heads, int(self.lengths.max()) + max_tokens, shape.hidden // shape.heads)
        # Uninitialized memory may contain NaN, and NaN times the weight 0 of a position beyond the end would be NaN.
        self.keys = [np.zeros(size, dtype=np.float32) for _ in range(shape.layers)]
        self.values = [np.zeros(size, dtype=np.float32) for _ in range(shape.layers)]

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep only the sequences at these positions."""
        index = np.asarray(rows)
        self.lengths, self.prompt_indices = self.lengths[index], self.prompt_indices[index]
        self.keys, self.values = [each[index] for each in self.keys], [each[index] for each in self.values]


def _build_layer(tensors: dict[str, Floats], prefix: str) -> _Layer:
    def joined(*names: str) -> Floats:
        return np.concatenate([tensors[f"{prefix}{name}"] for name in names]).T.copy()

    return _Layer(
        attention_norm=tensors[f"{prefix}input_layernorm.weight"],
        qkv=joined(*(f"self_attn.{name}_proj.weight" for name in "qkv")),
        qkv_bias=joined(*(f"self_attn.{name}_proj.bias" for name in "qkv")),
        out=joined("self_attn.o_proj.weight"),
        mlp_norm=tensors[f"{prefix}post_attention_layernorm.weight"],
        gate_up=joined("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        down=joined("mlp.down_proj.weight"),
    )


def _has_ended(tokens: list[int], longest: int, ends: Collection[int]) -> bool:
    return tokens[-1] in ends or len(tokens) == longest


def softmax(scores: Floats) -> Floats:
    """Compute the softmax over the last axis in place, and return the changed argument."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def _silu(x: Floats) -> Floats:
    with np.errstate(over="ignore"):  # exp(89) is infinite, and x / infinity is the limit
        result: Floats = x / (1 + np.exp(-x))
    return result
