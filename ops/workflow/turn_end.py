"""Find the end of the model's own turn in a completion; the text after it imitates another speaker.

A base model continues after its answer with another question and plan, in the format of its
prompt. These end a turn:

- a chat template's token between turns (`<|im_end|>`, `<|eot_id|>`, `</s>`, `[INST]`, …), anywhere;
- at the beginning of a line `Human:`, `User:`, `Assistant:`, or `user`, `assistant`, `system` alone on it
  (what is left of a template whose tokens were dropped);
- at the beginning of a line what only our prompts write: `--- Example 2 ---`, `--- Your turn ---`,
  `--- End of the response ---`, `Models on offer: Model 0`;
- `Question:` and `Models: 0 1` at the beginning of a line once the three lists were written: before
  that they belong to the reasoning about the question and the models.

A mark at the very beginning of the text opens the model's own turn and does not end it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

QUESTION_HEADING = "Question:"
OFFER_HEADING = "Models on offer: "
COMPACT_OFFER_HEADING = "Models: "
EXAMPLE_HEADING = "--- Example {number} ---"
YOUR_TURN_HEADING = "--- Your turn ---"
RESPONSE_END = "--- End of the response ---"
"""The mark after a response in the prompt of a later round. `prompt` writes all of these headings and marks."""


class TurnEnd(NamedTuple):
    """A mark that ends the model's turn."""

    start: int
    """The position of the mark's first character in the text."""
    end: int
    """The position after the mark's last character."""
    needs_lists: bool
    """Whether the mark ends the turn only if the three lists were written before it."""


_TOKEN = r"""\|(?:im_start|im_end|endoftext|endofprompt|begin_of_text|end_of_text|start_header_id|eot_id|eom_id
                 |end|eos|eot|user|assistant|system|START_OF_TURN_TOKEN|END_OF_TURN_TOKEN)\|>
           | ｜(?:begin▁of▁sentence|end▁of▁sentence|User|Assistant)｜>
           | /?s> | [be]os> | (?:start|end)_of_turn>"""
_ROLE = r"(?:\#{1,6}[ \t]++)?+(?:\*\*)?+(?:Human|HUMAN|User|USER|Assistant|ASSISTANT)(?:\*\*)?+:"
# Each mark begins with one of three characters: the search passes over the others at its greatest speed.
_MARK = re.compile(
    rf"""[\n<I](?:
        (?<=\n)(?=[-\#* \tAHMQUasu])(?:
            (?:{re.escape(OFFER_HEADING)}Model\ [0-9]++ | {re.escape(YOUR_TURN_HEADING)} | {re.escape(RESPONSE_END)}
              | {re.escape(EXAMPLE_HEADING).replace(re.escape("{number}"), "[0-9]++")})
          | [ \t]*+{_ROLE}
          | (?:user|assistant|system)[ \t\r]*+(?=\n)
          | (?P<after_plan>(?:\#{{1,6}}[ \t]++)?+(?:\*\*)?+{QUESTION_HEADING}
              | {re.escape(COMPACT_OFFER_HEADING)}[0-9]++(?:\ [0-9]++)*+[ \t\r]*+(?![^\n]))
        )
      | (?<=<)(?:{_TOKEN})
      | (?<=[\[/]I)NST\]
    )""",
    re.VERBOSE,
)
_OPENING = re.compile(
    r"""(?: \s++ | <s> | <bos> | <\|begin_of_text\|> | <｜begin▁of▁sentence｜> | <｜Assistant｜> | <\|assistant\|>
        | \[/INST\] | <\|im_start\|>assistant | <\|start_header_id\|>assistant<\|end_header_id\|>
        | <start_of_turn>model
        | (?:\#{1,6}[ \t]++)?+(?:\*\*)?+(?:Assistant|ASSISTANT)(?:\*\*)?+: | assistant(?=[ \t\r]*+\n) )*+""",
    re.VERBOSE,
)


def find_turn_ends(text: str) -> Iterator[TurnEnd]:
    """Yield the marks in a text in order, except for marks that open the model's own turn."""
    opening = _OPENING.match(text)
    begin = opening.end() if opening else 0
    for mark in _MARK.finditer("\n" + text):  # so that the first line has a beginning like the others
        if (end := mark.end() - 1) > begin:
            yield TurnEnd(max(0, mark.start() - 1), end, mark["after_plan"] is not None)
