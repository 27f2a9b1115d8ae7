"""The grammar accepts any text, parses what it renders, and its modes are nested. Text after the end of the model's
turn is never read, even if a base model continues with another prompt."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops.config import Prompting
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow, parse_workflow
from ops.workflow.literals import FormatFailure
from ops.workflow.prompt import build_conductor_messages, build_recursive_messages, load_few_shots
from tests.builders import make_problem

OFFERED = 7
MODES = pytest.mark.parametrize("mode", ["binary", "fine_grained"])

spoken = st.text(min_size=1, max_size=60).filter(lambda text: bool(text.strip()))
awkward = st.sampled_from([
    'say "yes"', "don't", "a\nb\r\nc\td", '"""', "'''", "\\", '\\"', "ends in \\",
    "\\frac{1}{2} \\sqrt x \\N \\u12 \\x", "\nu\neq\text{no} \rho \r\n\b\f\v", "\\nu \\text{x} \\\\ \\\\\\hline",
    "“curly” ‘quotes’", "Human: go on\nHuman: go on\n<|im_end|>", "[1, 2]", "]] ]", "model_id = [3]",
    'subtasks = ["x"]\naccess_list = [[]]', "# no comment", "naïve 日本 🙂", "\x00\x1a\x7f\u2028\ufeff", "{}(),;'`",
])  # fmt: skip


@st.composite
def workflows(draw: st.DrawFn, *, mode: str = "binary", most: int = 5) -> Workflow:
    steps = []
    for index in range(draw(st.integers(1, most))):
        access = draw(st.sampled_from(["none", "all"]))
        if mode == "fine_grained" and index and draw(st.booleans()):
            chosen = draw(st.permutations(range(index)))
            access = tuple(chosen[: draw(st.integers(1, index))])
        steps.append(Step(draw(st.integers(0, OFFERED - 1)), draw(spoken | awkward), access))
    return Workflow(tuple(steps))


# Pieces of the grammar in any order come near a workflow far more often than random characters.
PIECES = (
    "model_id", "subtasks", "access_list", "model_id = ", "subtasks = ", "access_list=", ": list[int]", " = ", "[",
    "]", "[]", '["all"]', '"all"', ",", ", ", "0", "1", "-2", "7", "1.5", "09", '"', "'", '"""', "'''", "\\", "\\x",
    "\n", "# ", "r", "f", '"Find x."', "'Go'", "(", ")", "{", "}", "\x00", "\ud800", "None", "...", "```python\n",
    "```", "model_id = [0]", 'subtasks = ["a"]', "access_list = [[]]", "Model ID:", "ACCESS LIST :", "**", "`", "“",
    "”", "‘", "’", "{", '"subtasks":', "\\nu", "\nHuman:", "\nQuestion:", "<|im_end|>",
)  # fmt: skip
pieces = st.sampled_from(PIECES)
texts = st.one_of(
    st.text(max_size=300),
    st.text(alphabet=st.characters(), max_size=100),  # including lone surrogates
    st.lists(pieces, max_size=40).map("".join),
)


def check_total(text: str, mode: str, recursive: bool, offered: int, most: int) -> None:
    """Check that the result is a valid workflow within the limits or a reason in words, without any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parsed = parse_workflow(text, offered=offered, max_steps=most, access=mode, recursive=recursive)
    if parsed.workflow is None:
        assert isinstance(parsed.failure, FormatFailure)
        assert parsed.detail
        assert len(parsed.detail) < 200
        return
    assert parsed.failure is None
    assert len(parsed.workflow.steps) <= most
    assert recursive or not parsed.workflow.is_empty
    assert all(0 <= step.worker < offered and step.subtask.strip() for step in parsed.workflow.steps)
    parsed.workflow.render().encode()
    if mode == "binary":
        assert all(step.access in ("none", "all") for step in parsed.workflow.steps)


@given(texts, st.sampled_from(["binary", "fine_grained"]), st.booleans(), st.integers(1, 7), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_any_text_gives_a_valid_workflow_or_a_reason(
    text: str, mode: str, recursive: bool, offered: int, most: int
) -> None:
    check_total(text, mode, recursive, offered, most)


def check_pieces(indices: bytes, settings: int) -> None:
    text = "".join(PIECES[index % len(PIECES)] for index in indices)
    check_total(text, "fine_grained" if settings & 1 else "binary", bool(settings & 2), 1 + settings % 7, 5)


def check_placed(text: str, place: int) -> None:
    """Check a text alone and in place of a value: as a list, inside a list, inside a string."""
    whole = ("{}", "model_id = {}", "subtasks = [{}]", 'access_list = [["{}"]]')[place].replace("{}", text)
    check_total(whole, "binary", False, 7, 5)


SOAK = (pytest.mark.soak, pytest.mark.timeout(1200))


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=SOAK)])
@pytest.mark.parametrize(
    ("check", "drawn"),
    [
        # A byte selects a piece, since hypothesis draws bytes ten times as fast as a list.
        pytest.param(check_pieces, (st.binary(max_size=48), st.integers(0, 255)), id="pieces"),
        pytest.param(check_placed, (st.text(st.characters(), max_size=120), st.integers(0, 3)), id="any characters"),
    ],
)
def test_many_texts(check: Any, drawn: tuple[st.SearchStrategy[Any], ...], count: int) -> None:
    each = settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    each(given(*drawn)(check))()


@MODES
@given(data=st.data(), recursive=st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_rendered_workflow_reads_back_the_same(mode: str, data: st.DataObject, recursive: bool) -> None:
    workflow = data.draw(workflows(mode=mode))
    assert parse_workflow(workflow.render(), offered=OFFERED, access=mode, recursive=recursive).workflow == workflow


@MODES
@given(count=st.integers(11, 50), data=st.data())
@settings(max_examples=20, deadline=None)
def test_workflows_of_fifty_steps_read_back_the_same(mode: str, count: int, data: st.DataObject) -> None:
    def access(index: int) -> str | tuple[int, ...]:
        every = tuple(range(index)) if mode == "fine_grained" and index else "all"
        return data.draw(st.sampled_from(["none", "all", every]))

    whole = Workflow(tuple(Step(index % OFFERED, f"Do part {index}.", access(index)) for index in range(count)))
    assert parse_workflow(whole.render(), offered=OFFERED, max_steps=50, access=mode).workflow == whole
    assert parse_workflow(whole.render(), offered=OFFERED, access=mode).workflow is None


def test_the_densest_graph_of_fifty_steps_is_read() -> None:
    dense = Workflow(tuple(Step(0, "Go on.", tuple(range(index))) for index in range(50)))
    assert parse_workflow(dense.render(), offered=1, max_steps=50, access="fine_grained").workflow == dense


@given(workflows(), st.text(max_size=200).filter(lambda text: "=" not in text and not set("\"'[]+*") & set(text)))
@settings(max_examples=40, deadline=None)
def test_free_reasoning_around_the_lists_changes_nothing(workflow: Workflow, prose: str) -> None:
    text = f"{prose}\n{workflow.render()}\n{prose}"
    assert parse_workflow(text, offered=OFFERED).workflow == workflow


@given(workflows(), workflows())
@settings(max_examples=30, deadline=None)
def test_the_last_of_two_workflows_wins(first: Workflow, last: Workflow) -> None:
    assert parse_workflow(f"{first.render()}\nBetter:\n{last.render()}", offered=OFFERED).workflow == last


@given(texts | workflows(mode="fine_grained").map(Workflow.render))
@settings(max_examples=60, deadline=None)
def test_the_fine_grained_mode_accepts_everything_of_the_strict_mode(text: str) -> None:
    strict = parse_workflow(text, offered=OFFERED)
    if strict.workflow is not None:
        assert parse_workflow(text, offered=OFFERED, access="fine_grained") == strict


@given(workflows(mode="fine_grained"))
@settings(max_examples=40, deadline=None)
def test_the_strict_mode_refuses_exactly_the_index_lists(workflow: Workflow) -> None:
    parsed = parse_workflow(workflow.render(), offered=OFFERED)
    if any(isinstance(step.access, tuple) for step in workflow.steps):
        assert parsed.failure == FormatFailure.BAD_ACCESS
    else:
        assert parsed.workflow == workflow


@given(workflows(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_truncated_workflow_is_a_failure_unless_only_blanks_are_lost(workflow: Workflow, data: st.DataObject) -> None:
    text = workflow.render()
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    inner = {step.subtask for step in workflow.steps}
    if not any("access_list" in subtask for subtask in inner):
        assert parse_workflow(cut, offered=OFFERED).failure is not None


class Repeated(NamedTuple):
    """A piece that is repeated up to a length, between two texts."""

    piece: str
    before: str = ""
    after: str = ""

    def text(self, length: int) -> str:
        return self.before + self.piece * (length // len(self.piece)) + self.after


ADVERSARIAL = {
    "quotes": Repeated('"', "subtasks = ["),
    "other quotes": Repeated("'", "subtasks = ["),
    "opening brackets": Repeated("[", "access_list = "),
    "empty lists": Repeated("[],", "access_list = [", "]"),
    "numbers": Repeated("1,", "model_id = [", "]"),
    "signs": Repeated("+", "model_id = [", "1]"),
    "one huge number": Repeated("9", "model_id = [", "]"),
    "backslashes": Repeated("\\", 'subtasks = ["'),
    "NULs": Repeated("\0", 'subtasks = ["', '"]'),
    "names": Repeated("model_id"),
    "assignments": Repeated("model_id="),
    "unclosed assignments": Repeated("model_id=["),
    "unreadable assignments": Repeated('subtasks=["\\x"]model_id=["\\x"]access_list=["\\x"]'),
    "long unreadable lists": Repeated("model_id=[" + "1," * 120 + "1 1]"),
    "strings that hide assignments": Repeated('"access_list=[ #"\n', "access_list=["),
    "nested ones that hide assignments": Repeated('"access_list=[[ #"\n', "access_list=[["),
    "unclosed triple quotes": Repeated("""subtasks = ['a\""" """),
    "triple quotes in both kinds": Repeated("subtasks=['''x\"\"\" "),
    "escaped quotes": Repeated('subtasks=["\\"'),
    "comments": Repeated("model_id=[#"),
    "blanks after a name": Repeated(" ", "model_id", "= [0]"),
    "annotations": Repeated("model_id: list[int]"),
    "assignments in assignments": Repeated("subtasks=[subtasks=[[[# ", "**1,"),
    "assignments that sum": Repeated("subtasks=[[+\n\n", "(0\n"),
    "bold names": Repeated("**model_id** ="),
    "keys": Repeated("model_id:"),
    "keys in bold": Repeated("access_list**"),
    "keys in quotes": Repeated("'model_id':"),
    "labels": Repeated("Access List: "),
    "blank lines after names": Repeated("subtasks:\n\n \n"),
    "fences after names": Repeated("Model ID:\n```python\n"),
    "bare values": Repeated("model_id=0"),
    "curly quotes": Repeated("subtasks=[“"),
    "nested curly quotes": Repeated("“", "subtasks = [“"),
    "closed curly quotes": Repeated("“”", "subtasks = [“"),
    "single curly quotes": Repeated("subtasks=[‘Don’"),
    "escapes": Repeated("\\\\\\n\\tan\\x", 'subtasks = ["', '"] + []'),
    "new lines": Repeated("\n"),
    "roles": Repeated("\nAssistant"),
    "roles that are its own": Repeated("Assistant: "),
    "questions": Repeated("\nQuestion: "),
    "tokens of another kind": Repeated("<|im_"),
    "lists out of order": Repeated("subtasks=[]model_id=[]access_list=[]", "", "subtasks=[]"),
    "lists of two names": Repeated("subtasks=[]model_id=[]"),
    "broken blocks": Repeated("subtasks=[1 1]model_id=[1 1]access_list=[1 1]"),
}


@pytest.mark.parametrize("length", [250_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_a_long_malicious_text_takes_linear_time_and_hides_nothing(kind: str, length: int) -> None:
    text = ADVERSARIAL[kind].text(length)
    part = min(_seconds(text[: len(text) // 16]) for _ in range(4))
    # Linear time may grow by a factor of six, since a text outside the cache takes longer per character; quadratic time
    # would grow sixteenfold.
    allowed = 16 * 6 * part + 0.01
    # Other work on the machine must not count: one measurement of four within the limit suffices.
    measured: list[float] = []
    while not measured or (len(measured) < 4 and measured[-1] >= allowed):
        measured.append(_seconds(text, refused=True))
    assert measured[-1] < allowed, f"{part * 1000:.1f} ms for a sixteenth, {min(measured) * 1000:.1f} ms for all"
    if kind in {"quotes", "other quotes"}:  # the workflow below is then part of the unterminated string
        tail = "\n\n"
    elif kind in {"comments", "backslashes"}:
        tail = "\n"
    else:
        tail = "\x01\n"
    wanted = Workflow.single(3)
    assert parse_workflow(text + tail + wanted.render(), offered=OFFERED).workflow == wanted


def _seconds(text: str, refused: bool = False) -> float:
    """Return the time of a parse; with `refused`, check that it finds no workflow."""
    began = time.process_time()
    parsed = parse_workflow(text, offered=OFFERED)
    took = time.process_time() - began
    assert not refused or parsed.failure is not None
    return took


def test_ten_thousand_workflows_in_a_row_give_the_last() -> None:
    text = "\n".join(Workflow.single(index % 6).render() for index in range(10_000))
    assert parse_workflow(text, offered=6).workflow == Workflow.single(9_999 % 6)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([(-1, "x")], "ordinal"),
        ([(0, "")], "subtask"),
        ([(0, " \n")], "subtask"),
        ([(0, "\ud800")], "subtask"),
        ([(0, "x"), (0, "y", (1,))], "not an earlier step"),
        ([(0, "x"), (0, "y", (0, 0))], "twice"),
    ],
)
def test_steps_that_no_text_can_express_are_refused(steps: list[Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Workflow(tuple(Step(*fields) for fields in steps))


def test_graph_of_a_workflow() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", (0,)), Step(3, "d", "all"), Step(4, "e", (2,))))
    assert Step(0, "x", ()) == Step(0, "x", "none")
    assert [workflow.visible_steps(index) for index in range(5)] == [(), (), (0,), (0, 1, 2), (2,)]
    assert workflow.needed_steps() == {0, 2, 4}
    backwards = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", (1, 0))))
    assert backwards.visible_steps(2) == (0, 1)
    assert Workflow(()).needed_steps() == frozenset()
    assert Workflow.single(2) == Workflow((Step(2, SOLVE_SUBTASK, "none"),))


# ── the end of the model's turn ──────────────────────────────────────────────

OWN = Workflow((Step(1, "Add."), Step(0, "Say it.", "all")))
INVENTED = Workflow.single(2, "Invented.").render()


def prompts(style: str, few_shots: str) -> list[str]:
    """Return each user message as a run-on text repeats it, in the first round and in a recursive one."""
    prompting = Prompting.model_validate({"style": style})
    shots = load_few_shots(Path(__file__).parents[3] / "data", few_shots)
    first = build_conductor_messages(make_problem(), 3, prompting, shots)
    again = build_recursive_messages(first, OWN.render(), "4", style=prompting.style)
    return [message["content"] for message in (*first, *again) if message["role"] == "user"]


@pytest.mark.parametrize("few_shots", ["none", "out_of_distribution", "in_distribution", "mixed"])
def test_a_completion_that_continues_with_our_prompt_is_cut(few_shots: str) -> None:
    [first, _, again] = prompts("full", few_shots)
    question = first[first.index("Question:\n") :]
    for text in (question, again[again.index("--- End") :], "--- Your turn ---\n"):
        assert parse_workflow(f"{OWN.render()}\n\n{text}\n\n{INVENTED}", offered=3).workflow == OWN
    assert parse_workflow(f"The answer is 4.\n\n{question}\n\n{INVENTED}", offered=3).workflow is None


def test_a_completion_that_continues_with_a_compact_prompt_is_cut() -> None:
    first, *_ = prompts("compact", "none")
    assert parse_workflow(f"{OWN.render()}\n{first}\n{INVENTED}", offered=3).workflow == OWN


MARKS = [
    "\nHuman: Again.\n\nAssistant: ", "\nUser: Again.\nAssistant:\n", "\n\n### User:\nAgain.\n\n### Assistant:\n",
    "<|im_end|>\n<|im_start|>user\nAgain.<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>",
    "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n", "</s>[INST] Again. [/INST] ",
    "<end_of_turn>\n<start_of_turn>user\n", "\nuser\nAgain.\nassistant\n", "\n--- Example 2 ---\n",
    "\nQuestion: Again?\n",
]  # fmt: skip


@given(workflows(), workflows(), st.sampled_from(MARKS))
@settings(max_examples=150, deadline=None)
def test_the_own_workflow_is_read_and_the_next_one_never(own: Workflow, invented: Workflow, mark: str) -> None:
    assert parse_workflow(f"Think.\n{own.render()}{mark}{invented.render()}", offered=OFFERED).workflow == own
    if "Question" not in mark:  # a model may repeat the question before its workflow
        assert parse_workflow(f"The answer is 4.{mark}{invented.render()}", offered=OFFERED).workflow is None


@given(workflows(), workflows(), st.text(alphabet="MSA,=[]01\n ", max_size=40))
@settings(max_examples=100, deadline=None)
def test_text_after_the_end_does_not_change_the_parse(own: Workflow, other: Workflow, junk: str) -> None:
    cut = own.render()[: len(own.render()) * 2 // 3]
    for text in (own.render(), cut, "no plan"):
        whole = parse_workflow(text + "\n", offered=OFFERED)
        assert parse_workflow(f"{text}\n<|im_end|>{junk}{other.render()}", offered=OFFERED).workflow == whole.workflow
