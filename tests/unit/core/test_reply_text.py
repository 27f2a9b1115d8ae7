"""The answer in a model's text: no reasoning, no control tokens; a text that mentions such marks stays whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.core.reply_text import KNOWN_NOTATIONS, Notation, extract_answer_text, parse_reply_text

BARS = "<\uff5cend\u2581of\u2581sentence\uff5c>"
"""DeepSeek's token, written with full-width bars and a low line."""

PAIRS = [(each.opening, each.closing) for each in KNOWN_NOTATIONS]


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_each_notation_in_each_position(opening: str, closing: str) -> None:
    found = {
        "before": extract_answer_text(f"{opening}\nIs it 4?\n{closing}\n\nIt is 5."),
        "prefilled": extract_answer_text(f"Is it 4?\n{closing}\n\nIt is 5."),
        "empty": extract_answer_text(f"{opening}\n\n{closing}\n\nIt is 5."),
        "behind": extract_answer_text(f"It is 5.\n{opening}Could it be 4?{closing}"),
        "twice": extract_answer_text(f"{opening}4?{closing}It is 5.\n{opening}6?{closing}"),
        "opened twice": extract_answer_text(f"{opening}4? {opening} 6?{closing}It is 5."),
        "nested": extract_answer_text(f"{opening}4? {opening} 6?{closing} 7? {closing}It is 5."),
        "closed twice": extract_answer_text(f"{opening}4?{closing}It is 5.{closing}"),
        "behind, unfinished": extract_answer_text(f"It is 5. {opening}Could it be 4"),
        "upper case": extract_answer_text(f"{opening.upper()}4?{closing.upper()}It is 5."),
    }
    assert found == dict.fromkeys(found, "It is 5.")


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_unfinished_reasoning_is_no_answer(opening: str, closing: str) -> None:
    for text in (
        f"{opening}So \\boxed{{5}}",
        f"\n {opening}\nThe answer is (A).",
        f"{opening}They want it `{closing}` so. \\boxed{{5}}",
        f"So \\boxed{{5}}{closing}",
        f"So \\boxed{{5}}{closing}\n{opening}5",
    ):
        assert parse_reply_text(text) == ("", True), text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<|channel|>analysis<|message|>4?<|end|><|start|>assistant<|channel|>final<|message|>5<|return|>", "5"),
        ("4?<|end|><|start|>assistant<|channel|>final<|message|>5", "5"),
        ("<|channel|>final<|message|>5", "5"),
        ("<|start|>assistant<|channel|>final <|constrain|>json<|message|>{\"a\": 5}<|return|>", '{"a": 5}'),
        ("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", ""),
        ("<|channel|>analysis<|message|>So 5", ""),
        ("<|channel|>analysis<|message|>So 5<|end|>", ""),
        ("<|channel|>analysis<|message|>So 5<|end|><|start|>assistant<|channel|>fi", ""),
        ("<|channel|>anal", ""),
        ("So 5.<|end|><|start|>assistant<|channel|>", ""),
        ("It is 5.<|channel|>analysis<|message|>4?", "It is 5."),
        ("<|channel|>analysis<|message|>4?<|end|><|channel|>final<|message|>`<|end|>`, 5<|return|>", "`<|end|>`, 5"),
        ("analysisWe need 2 + 3.assistantfinalIt is 5.", "It is 5."),
        ("analysisWe need 2 + 3.assistantcommentaryHm.assistantfinalIt is 5.", "It is 5."),
        ("analysisWe need 2 + 3. So \\boxed{5}", ""),
        ("assistantfinalIt is 5.", "It is 5."),
    ],
)  # fmt: skip
def test_channels_of_the_harmony_format(text: str, answer: str) -> None:
    assert parse_reply_text(text) == (answer, True)


@pytest.mark.parametrize(
    "left",
    ["<|im_end|>", "</s>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>", "<|end|>", "<turn|>", "<eos>", "[/INST]",
     BARS, "\ud83d", "\ufffd", "\x00", "\u200b", "\n<|im_end|>\n", "</s></s>", "<|im_end|></s>", "<|some_other|>",
     "<pad><pad>", "<|user|>", "<|im_end|>\n<|im_start|>user\nWhat is 3 + 3?<|im_end|>\n<|im_start|>assistant\n6",
     "</s><|im_end|>", "<|endoftext|>Human: What is 3 + 3?\nAssistant: 6",
     "<end_of_turn>\n<start_of_turn>user\nAnd 6?"],
)  # fmt: skip
def test_what_a_server_leaves_behind_an_answer(left: str) -> None:
    for answer in ("5", "So \\boxed{5}", "(A)", "```python\nprint(1)\n```", '{"answer": "5"}'):
        assert parse_reply_text(answer + left) == (answer, False)
        assert extract_answer_text(f"<think>4?</think>{answer}{left}") == answer


@pytest.mark.parametrize(
    "before",
    ["<s>", "<s> ", "<|im_start|>assistant\n", "<|start_header_id|>assistant<|end_header_id|>\n\n", "[/INST] ",
     "<start_of_turn>model\n", "<|turn>model\n", "<|assistant|>\n", "\ufeff", "<bos>"],
)  # fmt: skip
def test_what_a_server_leaves_before_an_answer(before: str) -> None:
    assert extract_answer_text(f"{before}It is 5.") == "It is 5."
    assert extract_answer_text(f"{before}<think>4?</think>It is 5.</s>") == "It is 5."


WHOLE = [
    "It is 5.",
    "  It is 5.\n\n",
    "",
    " \n",
    'print("<think>")',
    "print('</think>' + \"<|im_end|>\")",
    "Use `<think>` and `</think>`.",
    "The answer is `</think>`.",
    'The tag is "<think>", and it is closed by "</think>".',
    "The tag is “<think>”.",
    "The <think> tag begins the reasoning, and the </think> tag ends it.",
    "Put it between <think> and </think> to hide it.",
    "Write it in <think></think> tags.",
    "Write it in <think>…</think> tags.",
    "The token <|im_end|> ends a turn.",
    "A turn ends with <|im_end|>.",
    "```python\nprint('<think>')\n```",
    "```\n<think>\n4?\n</think>\n```\nSo a reply looks.",
    "~~~xml\n<think>\n~~~\nSo it begins.",
    "````\n```\n<think>\n```\n````",
    "import re\n\ndef f(s):\n    return re.sub(r'<think>.*?</think>', '', s, flags=re.S)\n",
    "import re\n\nPROMPT = '''\n<think>\nreason here\n'''\nprint(PROMPT)\n",
    "def f(text):\n    # drop everything up to </think>\n    return text.split('</think>')[-1]\n",
    'std::cout << "<think>" << std::endl;',
    'const parts = text.split("</think>");',
    "x <s>3</s>",
    "a <| b |> c",
    "The state is |psi> and <phi|psi>.",
    "analysis of the data",
    "analysisResult = 5",
    "The [THINK] token begins it.",
    "if x < 3 and y > 4: [1, 2]",
    "😀 \ufffd is in the middle.",
]


@pytest.mark.parametrize("text", WHOLE)
def test_a_text_that_mentions_marks_stays_as_it_is(text: str) -> None:
    assert parse_reply_text(text) == (text, False)


@pytest.mark.parametrize("text", [text for text in WHOLE if text.strip()])
def test_reasoning_before_such_a_text_is_removed(text: str) -> None:
    assert extract_answer_text(f"<think>Is it 4?</think>\n{text}") == text.strip()
    assert extract_answer_text(f"Is it 4?\n</think>\n{text}") == text.strip()
    assert extract_answer_text(f"{text}<|endoftext|>").rstrip() == text.rstrip()


def test_a_draft_of_a_program_that_the_reasoning_does_not_finish() -> None:
    program = "```python\nprint(1)\n```"
    assert extract_answer_text(f"<think>\n```python\nprint(2)\n</think>\n{program}") == program
    assert extract_answer_text(f"Try\n```python\nprint(2)\n</think>\n{program}") == program
    assert extract_answer_text(f"<think>`a\n</think>\n{program}") == program


def test_a_workers_own_marks_and_tokens() -> None:
    own = [Notation("Here is my thought process:", "Here is my response:")]
    text = "Here is my thought process: 4?\nHere is my response: It is <think>5</think>.[END FINAL RESPONSE]"
    assert parse_reply_text(text, own, ["[END FINAL RESPONSE]"]) == ("It is <think>5</think>.", True)
    assert parse_reply_text("<think>4?</think>5", [Notation("<a>", "</a>")]) == ("<think>4?</think>5", False)
    assert parse_reply_text("<think>4?</think>5<|im_end|>", []) == ("<think>4?</think>5", False)


def test_a_template_that_opens_the_reasoning() -> None:
    prefilled = [Notation("<think>", "</think>", prefilled=True)]
    assert parse_reply_text("Is it 4?</think>It is 5.", prefilled) == ("It is 5.", True)
    assert parse_reply_text("<think>Is it 4?</think>It is 5.", prefilled) == ("It is 5.", True)
    assert parse_reply_text("So \\boxed{5}", prefilled) == ("", True)


PARTS = [
    *(mark for each in KNOWN_NOTATIONS[:8] for mark in (each.opening, each.closing)),
    "<|channel|>final<|message|>", "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant", "<|im_end|>",
    "</s>", "<s>", "5", "a ", "b.", "\n", "```", "```\n", "`", '"', "'", " ", "the ", "tag", "assistantfinal",
    "analysisWe go ", "\ufffd", "\ud800", "(", ")", "…",
]  # fmt: skip


def test_a_cleaned_text_is_cleaned_again_without_a_change() -> None:
    for seed in range(3_000):
        chance = random.Random(seed)
        text = "".join(chance.choice(PARTS) for _ in range(chance.randint(1, 14)))
        once = extract_answer_text(text)
        assert extract_answer_text(once) == once, text
        assert len(once) <= len(text)


@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_is_read(text: str) -> None:
    extract_answer_text(text).encode()


@pytest.mark.parametrize(
    "part",
    [" ", "\n", '"', '("', "“", "`", "```a\n", "~~~\n", "<", "\ufffd", *PARTS[:18], "<think></think>", " <think> and"],
)  # fmt: skip
def test_a_long_text_is_read_in_linear_time(part: str) -> None:
    """A quadratic search would take half an hour here."""
    many = part * (50_000 // len(part))
    for text in (f"<think>{many}", f"5{many}</s>", f"{many}</think>5"):
        extract_answer_text(text)
