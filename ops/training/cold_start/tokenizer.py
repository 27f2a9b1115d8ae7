"""Train the tokenizer of a policy that is trained from scratch.

Digits are separate tokens, and each fixed part of the workflow grammar is one token, so that a two-step workflow takes
about 25 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ops.conductor.scratch_tokenizer import CHAT_TEMPLATE, END_TOKEN, PAD_TOKEN, ROLE_TOKENS

_GRAMMAR = (
    "model_id = [",
    ']\nsubtasks = ["',
    '", "',
    '"]\naccess_list = [',
    "[]",
    '["all"]',
    ", ",
)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer that is trained on `texts` and has at most `vocabulary` tokens.

    Any text can be encoded and decoded without loss.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(_GRAMMAR),
        special_tokens=[PAD_TOKEN, END_TOKEN, *ROLE_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(list(_GRAMMAR))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD_TOKEN, eos_token=END_TOKEN, padding_side="left"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
