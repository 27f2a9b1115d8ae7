"""Text after the end of the model's turn is never read, even if a base model continues with another prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Prompting
from ops.core.problem import Problem
from ops.workflow.grammar import Step, Workflow, parse
from ops.workflow.prompt import conductor_messages, load_few_shots, recursive_messages
from tests.unit.workflow.test_grammar_properties import OFFERED, workflows

DATA = Path(__file__).parents[3] / "data"
PROBLEM = Problem("p", "math500", "math", "train", "What is 2 + 2?", "4", "math")
OWN = Workflow((Step(1, "Add."), Step(0, "Say it.", "all")))
INVENTED = Workflow.single(2, "Invented.")


def prompts(style: str, few_shots: str) -> list[str]:
    """Return each user message as a run-on text repeats it, in the first round and in a recursive one."""
    prompting = Prompting.model_validate({"style": style})
    shots = load_few_shots(DATA, few_shots)
    first = conductor_messages(PROBLEM, 3, prompting, shots)
    again = recursive_messages(first, OWN.render(), "4", style=prompting.style)
    return [message["content"] for message in (*first, *again) if message["role"] == "user"]


@pytest.mark.parametrize("few_shots", ["none", "out_of_distribution", "in_distribution", "mixed"])
def test_a_completion_that_goes_on_with_our_prompt_is_cut(few_shots: str) -> None:
    [first, _, again] = prompts("full", few_shots)
    for text in (first[first.index("Question:\n") :], again[again.index("--- End") :], "--- Your turn ---\n"):
        assert parse(f"{OWN.render()}\n\n{text}\n\n{INVENTED.render()}", offered=3).workflow == OWN


def test_a_completion_that_goes_on_with_a_compact_prompt_is_cut() -> None:
    first, *_ = prompts("compact", "none")
    assert parse(f"{OWN.render()}\n{first}\n{INVENTED.render()}", offered=3).workflow == OWN


@pytest.mark.parametrize("few_shots", ["none", "mixed"])
def test_a_plan_after_an_invented_question_is_not_read(few_shots: str) -> None:
    [first, *_] = prompts("full", few_shots)
    text = first[first.index("Question:\n") :]
    assert parse(f"The answer is 4.\n\n{text}\n\n{INVENTED.render()}", offered=3).workflow is None


MARKS = [
    "\nHuman: Again.\n\nAssistant: ",
    "\nUser: Again.\nAssistant:\n",
    "\n\n### User:\nAgain.\n\n### Assistant:\n",
    "<|im_end|>\n<|im_start|>user\nAgain.<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>",
    "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
    "</s>[INST] Again. [/INST] ",
    "<end_of_turn>\n<start_of_turn>user\n",
    "\nuser\nAgain.\nassistant\n",
    "\n--- Example 2 ---\n",
    "\nQuestion: Again?\n",
]


@given(workflows(), workflows(), st.sampled_from(MARKS))
@settings(max_examples=150, deadline=None)
def test_the_own_workflow_is_read_and_the_next_one_never(own: Workflow, invented: Workflow, mark: str) -> None:
    assert parse(f"Think.\n{own.render()}{mark}{invented.render()}", offered=OFFERED).workflow == own


@given(workflows(), st.sampled_from([mark for mark in MARKS if "Question" not in mark]))
@settings(max_examples=100, deadline=None)
def test_a_turn_without_a_workflow_has_none(invented: Workflow, mark: str) -> None:
    assert parse(f"The answer is 4.{mark}{invented.render()}", offered=OFFERED).workflow is None


@given(workflows(), workflows(), st.text(alphabet="MSA,=[]01\n ", max_size=40))
@settings(max_examples=100, deadline=None)
def test_text_after_the_end_does_not_change_the_parse(own: Workflow, other: Workflow, junk: str) -> None:
    cut = own.render()[: len(own.render()) * 2 // 3]
    for text in (own.render(), cut, "no plan"):
        whole = parse(text + "\n", offered=OFFERED)
        assert parse(f"{text}\n<|im_end|>{junk}{other.render()}", offered=OFFERED).workflow == whole.workflow
