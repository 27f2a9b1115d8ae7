"""A response that is too long keeps its beginning and its end, and states how much is missing."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from ops.workflow.execution import carried


def tokens(text: str) -> int:
    from litellm.litellm_core_utils.default_encoding import encoding

    return len(encoding.encode_ordinary(text))


@given(st.text(max_size=400), st.integers(16, 60))
@settings(max_examples=150, deadline=None)
def test_both_ends_are_kept_and_the_mark_is_true(text: str, limit: int) -> None:
    result, total = carried(text, limit), tokens(text)
    if total <= limit:
        assert result == (text, 0)
        return
    assert result.cut == total - limit
    head, mark, tail = re.split(r"\n\[… (cut: \d+ of \d+ tokens shown)\]\n", result.text, maxsplit=1)
    assert mark == f"cut: {limit} of {total} tokens shown"
    assert text.startswith(head)
    assert text.endswith(tail)


def test_without_a_limit_or_within_it_nothing_is_touched() -> None:
    long = "word " * 5000
    assert carried(long, None) == (long, 0)
    assert carried("short", 16) == ("short", 0)


def test_characters_are_not_cut_in_two() -> None:
    result = carried("日本語のテキスト" * 100, 17)
    assert "\ufffd" not in result.text
    assert result.cut > 0


def test_control_tokens_are_counted_as_the_text_that_they_are() -> None:
    assert carried("<|endoftext|>" * 40, 16).cut > 0
