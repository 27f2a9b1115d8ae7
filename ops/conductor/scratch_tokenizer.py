"""The tokenizer of a policy made from scratch, read without transformers, and its chat template."""

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
"""The chat template, as a file of the policy; `ScratchTokenizer.apply_chat_template` fills it in."""


class ScratchTokenizer:
    """Encodes and decodes as transformers does with the same files; any thread may use it.

    It has those methods and attributes of a transformers tokenizer that a policy's writer uses.
    """

    chat_template = CHAT_TEMPLATE

    def __init__(self, tokenizer: Tokenizer, eos_token_id: int, declared_ends: list[int], context: int) -> None:
        tokenizer.no_padding()  # a file that was written after a padded batch says otherwise
        tokenizer.no_truncation()
        self._tokenizer, self.eos_token_id = tokenizer, eos_token_id
        self.declared_ends = declared_ends
        """Tokens that end a completion according to the model's generation configuration."""
        self.context = context
        """Longest sequence of the model (tokens)."""

    @classmethod
    def read(cls, folder: Path) -> ScratchTokenizer | None:
        """Return the tokenizer of the policy in `folder`; None if its files are not those of a policy made from
        scratch."""
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
        """Return the tokens beyond the trained vocabulary, each with its `content` and whether it is `special`."""
        added: Mapping[int, Any] = self._tokenizer.get_added_tokens_decoder()
        return added

    def apply_chat_template(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = False, tokenize: bool = False
    ) -> str:
        """Return the chat as text; `tokenize` must be False."""
        assert not tokenize
        turns = "".join(f"<|{message['role']}|>{message['content']}{END_TOKEN}" for message in messages)
        return turns + ("<|assistant|>" if add_generation_prompt else "")

    def __call__(self, texts: str | Sequence[str], *, add_special_tokens: bool) -> dict[str, Any]:
        """Return the tokens of a text, or of each text, as `input_ids`."""
        if isinstance(texts, str):
            return {"input_ids": self._tokenizer.encode(texts, add_special_tokens=add_special_tokens).ids}
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return {"input_ids": [each.ids for each in encoded]}

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of tokens."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens))


def _read_json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
