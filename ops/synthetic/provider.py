"""The embedded workers as a provider: `local/NAME` answers in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ops.core.response import Sample
from ops.synthetic.generalists import SKILLS, think
from ops.synthetic.reading import read
from ops.synthetic.tools import TOOLS

NAMES = (*TOOLS, *SKILLS)


def answer(
    messages: Sequence[Mapping[str, str]], *, model: str, sample: int | Sample = 0, temperature: float = 1.0, **_: Any
) -> SimpleNamespace:
    """The response of the tool or generalist of that name, in the format of OpenAI's chat completions.

    Raises `KeyError` for a name that is not among `NAMES`.
    """
    name = model.removeprefix("local/")
    if name in TOOLS:
        text = TOOLS[name](read(messages))
    else:
        text = think(name, messages, sample=sample, temperature=temperature).text
    return SimpleNamespace(
        model=model,
        choices=[SimpleNamespace(finish_reason="stop", message=SimpleNamespace(content=text))],
        usage=SimpleNamespace(
            prompt_tokens=sum(tokens(message["content"]) for message in messages), completion_tokens=tokens(text)
        ),
    )


def tokens(text: str) -> int:
    """Tokens that a tool bills: four characters each, at least one."""
    return max(1, (len(text) + 3) // 4)
