"""The tokenizer and the chat template of a policy made from scratch, which are read without transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.core.messages import Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD_TOKEN, END_TOKEN = "<|pad|>", "<|end|>"
ROLE_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The chat template in the policy's folder. `ScratchTokenizer.apply_chat_template` gives the same text."""


class ScratchTokenizer:
    """Encodes and decodes texts in the same way as transformers does with the same files.

    It has the methods and attributes of a transformers tokenizer that the Conductors use. Several threads may use it at
    the same time.
    """

    chat_template = CHAT_TEMPLATE

    def __init__(self, tokenizer: Tokenizer, eos_token_id: int, declared_ends: list[int], context: int) -> None:
        tokenizer.no_padding()  # a file that was saved after a padded batch would switch padding on
        tokenizer.no_truncation()
        self._tokenizer, self.eos_token_id = tokenizer, eos_token_id
        self.declared_ends = declared_ends
        """The ids of the tokens that end a completion according to the model's generation configuration."""
        self.context = context
        """The length of the model's longest sequence in tokens."""

    @classmethod
    def read(cls, folder: Path) -> ScratchTokenizer | None:
        """Return the tokenizer of the policy in `folder`, or None if the policy was not made from scratch."""
        from tokenizers import Tokenizer

        try:
            if (folder / "chat_template.jinja").read_text(encoding="utf-8") != CHAT_TEMPLATE:
                return None
            tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))
            end = tokenizer.token_to_id(_read_json(folder / "tokenizer_config.json")["eos_token"])
            declared = _read_json(folder / "generation_config.json")["eos_token_id"]
            context = int(_read_json(folder / "config.json")["max_position_embeddings"])
        except (OSError, ValueError, KeyError):
            return None
        if end is None:
            return None
        return cls(tokenizer, end, [declared] if isinstance(declared, int) else list(declared), context)

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Return the added tokens by id. Each has its text as `content`, and is `special` if it is a control token."""
        added: Mapping[int, Any] = self._tokenizer.get_added_tokens_decoder()
        return added

    def apply_chat_template(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = False, tokenize: bool = False
    ) -> str:
        """Return the chat as text.

        `add_generation_prompt` adds the opening of an answer, and `tokenize` must be False.
        """
        assert not tokenize
        turns = "".join(f"<|{message['role']}|>{message['content']}{END_TOKEN}" for message in messages)
        return turns + ("<|assistant|>" if add_generation_prompt else "")

    def __call__(self, texts: str | Sequence[str], *, add_special_tokens: bool) -> dict[str, Any]:
        """Return the token ids of one text or of each text under the key `input_ids`."""
        if isinstance(texts, str):
            return {"input_ids": self._tokenizer.encode(texts, add_special_tokens=add_special_tokens).ids}
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return {"input_ids": [each.ids for each in encoded]}

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text that the tokens encode."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens))


def _read_json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
