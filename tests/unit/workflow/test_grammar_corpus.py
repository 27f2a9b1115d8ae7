"""What models really write, and how each of it must be read: six workers on offer, five steps at most."""

from __future__ import annotations

import warnings

import pytest

from ops.workflow.grammar import FormatFailure as F
from ops.workflow.grammar import Step, Workflow, parse

PLAIN = 'model_id = [1, 0]\nsubtasks = ["Find x.", "Compute it."]\naccess_list = [[], ["all"]]'
TWO = Workflow((Step(1, "Find x."), Step(0, "Compute it.", "all")))
ONE = Workflow((Step(2, "Go."),))
ONE_TEXT = 'model_id = [2]\nsubtasks = ["Go."]\naccess_list = [[]]'


def lists(ids: str = "[2]", subtasks: str = '["Go."]', access: str = "[[]]") -> str:
    return f"model_id = {ids}\nsubtasks = {subtasks}\naccess_list = {access}"


READ = {
    "plain": (PLAIN, TWO),
    "reasoning first": (f"The question has two parts [see above], so two models.\n\n{PLAIN}", TWO),
    "fenced": (f"Plan:\n```python\n{PLAIN}\n```\nDone.", TWO),
    "fence without a language": (f"```\n{PLAIN}\n```", TWO),
    "fences and prose between the lists": (
        "First:\n```python\nmodel_id = [2]\n```\nThen:\n```\nsubtasks = ['Go.']\n```\n\naccess_list = [[]]",
        ONE,
    ),
    "single quotes": (
        "model_id = [1, 0]\nsubtasks = ['Find x.', 'Compute it.']\naccess_list = [[], ['all']]",
        TWO,
    ),
    "all as a bare string": (PLAIN.replace('["all"]', '"all"'), TWO),
    "trailing commas": (lists("[2,]", '["Go.",]', "[[],]"), ONE),
    "no blanks": ('model_id=[2]\nsubtasks=["Go."]\naccess_list=[[]]', ONE),
    "one line with semicolons": ('model_id = [2]; subtasks = ["Go."]; access_list = [[]]', ONE),
    "another order": ('access_list = [[]]\nmodel_id = [2]\nsubtasks = ["Go."]', ONE),
    "several lines": (
        lists("[\n    1,\n    0,\n]", '[\n  "Find x.",\n  "Compute it.",\n]', '[\n  [],\n  ["all"],\n]'),
        TWO,
    ),
    "comments in the lists": (
        "model_id = [2]  # don't change\nsubtasks = [ # it's \"one\" ]\n  'Go.' # [\n]\naccess_list = [[]]",
        ONE,
    ),
    "Windows line ends": (PLAIN.replace("\n", "\r\n"), TWO),
    "annotations": (
        'model_id: list[int] = [2]\nsubtasks: List[str] = ["Go."]\naccess_list: list[list[str]] = [[]]',
        ONE,
    ),
    "keyword arguments": ('plan(model_id=[2], subtasks=["Go."], access_list=[[]])', ONE),
    "Markdown bold": ('**model_id = [2]**\n**subtasks = ["Go."]**\n**access_list = [[]]**', ONE),
    "inline code": ('- `model_id = [2]`\n- `subtasks = ["Go."]`\n- `access_list = [[]]`', ONE),
    "a sentence's full stop": ('So model_id = [2]. Then subtasks = ["Go."]. And access_list = [[]].', ONE),
    "brackets in a subtask": (
        lists(subtasks='["Take [0, 1] and ]]."]'),
        Workflow.single(2, "Take [0, 1] and ]]."),
    ),
    "quotes in a subtask": (
        lists(subtasks='["Say \\"hi\\", don\'t shout."]'),
        Workflow.single(2, 'Say "hi", don\'t shout.'),
    ),
    "an escaped newline": (lists(subtasks='["a\\nb"]'), Workflow.single(2, "a\nb")),
    "triple quotes": (lists(subtasks='["""a\n"b" c"""]'), Workflow.single(2, 'a\n"b" c')),
    "raw string with LaTeX": (
        lists(subtasks='[r"Use \\frac{\\sqrt 2}{2}."]'),
        Workflow.single(2, "Use \\frac{\\sqrt 2}{2}."),
    ),
    "LaTeX that is no escape": (lists(subtasks='["Use \\sqrt{2}."]'), Workflow.single(2, "Use \\sqrt{2}.")),
    "adjacent strings": (lists(subtasks='["Go"\n  " on."]'), Workflow.single(2, "Go on.")),
    "unicode": (lists(subtasks='["Löse ∫ 日本 🙂"]'), Workflow.single(2, "Löse ∫ 日本 🙂")),
    "an assignment inside a subtask": (
        lists(subtasks='["Write model_id = [5] and stop."]'),
        Workflow.single(2, "Write model_id = [5] and stop."),
    ),
    "repeated block": (f"{PLAIN}\n\nOn reflection:\n{ONE_TEXT}", ONE),
    "one list corrected": (f"{PLAIN}\nmodel_id = [3, 0]", Workflow((Step(3, "Find x."), TWO.steps[1]))),
    "a second block that is cut off": (f"{ONE_TEXT}\n\nAgain:\nmodel_id = [1, ", ONE),
    "a second block cut off in a string": (f'{ONE_TEXT}\nsubtasks = ["Fi', ONE),
    "a template after it": (
        f"{ONE_TEXT}\nFormat: model_id = [...], subtasks = [...], access_list = [...]",
        ONE,
    ),
    "a template before it": (
        f"model_id = [<ids>]\nsubtasks = [str, ...]\naccess_list = [x]\n\n{ONE_TEXT}",
        ONE,
    ),
    "words after it": (f"{ONE_TEXT}\nmodel_id = the best model; access_list = as above", ONE),
    "an unclosed list before it": (f"model_id = [1, 0\nsubtasks = [\n\n{ONE_TEXT}", ONE),
    "a stray quote before it": (f"subtasks = ['don't]\n{ONE_TEXT}", ONE),
    "a comparison after it": (f"{ONE_TEXT}\nif model_id == [5]: pass", ONE),
    "longer names after it": (f"{ONE_TEXT}\nmy_model_id = [5]\nself.subtasks = []\nmodel_ids = [4]", ONE),
    "all in the first step": (lists(access='[["all"]]'), Workflow((Step(2, "Go.", "all"),))),
    "all workers are the same": (
        lists("[4, 4]", '["a", "b"]', '[[], "all"]'),
        Workflow((Step(4, "a"), Step(4, "b", "all"))),
    ),
    "five steps": (
        lists("[0, 1, 2, 3, 4]", '["a", "b", "c", "d", "e"]', "[[], [], [], [], []]"),
        Workflow(tuple(Step(index, "abcde"[index]) for index in range(5))),
    ),
}

FAILED = {
    "nothing": ("", F.NO_ASSIGNMENT),
    "only prose": ("I think model 2 should solve it.", F.NO_ASSIGNMENT),
    "a direct answer": ("The answer is \\boxed{42}.", F.NO_ASSIGNMENT),
    "JSON": ('{"model_id": [2], "subtasks": ["Go."], "access_list": [[]]}', F.NO_ASSIGNMENT),
    "YAML": ("model_id: [2]\nsubtasks: [Go.]\naccess_list: [[]]", F.NO_ASSIGNMENT),
    "Markdown list": ("1. Model 2: Find x.\n2. Model 0: Compute it.", F.NO_ASSIGNMENT),
    "a comparison": ("if model_id == [2]: ...", F.NO_ASSIGNMENT),
    "no model_id": ('subtasks = ["Go."]\naccess_list = [[]]', F.MISSING_MODEL_ID),
    "no subtasks": ("model_id = [2]\naccess_list = [[]]", F.MISSING_SUBTASKS),
    "no access_list": ('model_id = [2]\nsubtasks = ["Go."]', F.MISSING_ACCESS_LIST),
    "cut off before access_list": ('model_id = [2]\nsubtasks = ["Go."]\naccess_l', F.MISSING_ACCESS_LIST),
    "cut off in access_list": ('model_id = [2]\nsubtasks = ["Go."]\naccess_list = [[', F.UNBALANCED),
    "cut off in a subtask": ('model_id = [2]\naccess_list = [[]]\nsubtasks = ["Go', F.UNBALANCED),
    "an unclosed list in the middle": (lists("[2"), F.UNBALANCED),
    "an unclosed string": (lists(subtasks='["Go.]'), F.UNBALANCED),
    "an apostrophe in single quotes": (lists(subtasks="['Don't go.']"), F.NOT_A_LITERAL),
    "ids as strings": (lists('["2"]'), F.BAD_WORKER),
    "ids as names": (lists('["Model 2"]'), F.BAD_WORKER),
    "ids as bare names": (lists("[Model_2]"), F.NOT_A_LITERAL),
    "ids as floats": (lists("[2.0]"), F.BAD_WORKER),
    "ids nested": (lists("[[2]]"), F.BAD_WORKER),
    "id with a leading zero": (lists("[02]"), F.NOT_A_LITERAL),
    "an id alone": (lists("2"), F.NOT_A_LIST),
    "a tuple": (lists("(2,)"), F.NOT_A_LIST),
    "a call": (lists("list(range(1))"), F.NOT_A_LIST),
    "a comprehension": (lists("[i for i in range(1)]"), F.NOT_A_LITERAL),
    "a product": (lists("[2] * 2", '["a", "b"]', "[[], []]"), F.NOT_A_LITERAL),
    "a sum": (lists("[2] + [1]", '["a", "b"]', "[[], []]"), F.NOT_A_LITERAL),
    "an attack": (lists('[__import__("os").system("true")]'), F.NOT_A_LITERAL),
    "an f-string": (lists(subtasks='[f"Go {x}."]'), F.NOT_A_LITERAL),
    "curly quotes": (lists(subtasks="[“Go.”]"), F.NOT_A_LITERAL),
    "missing comma between ids": (lists("[2 1]", '["a", "b"]', "[[], []]"), F.NOT_A_LITERAL),
    "a broken escape": (lists(subtasks='["\\x"]'), F.NOT_A_LITERAL),
    "missing comma between subtasks": (lists("[2, 1]", '["a" "b"]', "[[], []]"), F.LENGTH_MISMATCH),
    "fewer subtasks": (lists("[2, 1]", '["a"]', "[[], []]"), F.LENGTH_MISMATCH),
    "one access for all": (lists("[2, 1]", '["a", "b"]', '["all"]'), F.LENGTH_MISMATCH),
    "an empty access list": (lists(access="[]"), F.LENGTH_MISMATCH),
    "three empty lists": (lists("[]", "[]", "[]"), F.EMPTY),
    "six steps": (
        lists("[0, 0, 0, 0, 0, 0]", '["a", "b", "c", "d", "e", "f"]', "[[], [], [], [], [], []]"),
        F.TOO_MANY_STEPS,
    ),
    "a worker too many": (lists("[6]"), F.UNKNOWN_WORKER),
    "counting from one below": (lists("[-1]"), F.UNKNOWN_WORKER),
    "an empty subtask": (lists(subtasks='[""]'), F.EMPTY_SUBTASK),
    "a blank subtask": (lists(subtasks='[" \\n"]'), F.EMPTY_SUBTASK),
    "a number as subtask": (lists(subtasks="[1]"), F.BAD_SUBTASK),
    "a lone surrogate": (lists(subtasks='["\\ud800"]'), F.BAD_SUBTASK),
    "indices in strict mode": (lists("[2, 1]", '["a", "b"]', "[[], [0]]"), F.BAD_ACCESS),
    "None as access": (lists(access="[None]"), F.NOT_A_LITERAL),
    "none in words": (lists(access='["none"]'), F.BAD_ACCESS),
    "all twice": (lists(access='[["all", "all"]]'), F.BAD_ACCESS),
    "All capitalised": (lists(access='["All"]'), F.BAD_ACCESS),
    "access nested too deeply": (lists(access="[[[]]]"), F.TOO_DEEP),
    "a loop of numbers": (lists("[" + "1, " * 300 + "]"), F.TOO_LONG),
    "a huge subtask": (lists(subtasks='["' + "la " * 30_000 + '"]'), F.TOO_LONG),
    "a correction that is wrong": (f"{ONE_TEXT}\nmodel_id = [9]", F.UNKNOWN_WORKER),
}


@pytest.mark.parametrize("name", READ)
def test_is_read_as(name: str) -> None:
    text, wanted = READ[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model's backslashes must not become Python's warnings
        parsed = parse(text, offered=6)
    assert parsed.workflow == wanted, parsed.detail


@pytest.mark.parametrize("name", FAILED)
def test_fails_for_the_reason(name: str) -> None:
    text, reason = FAILED[name]
    parsed = parse(text, offered=6)
    assert parsed.failure == reason, parsed
    assert parsed.workflow is None
    assert parsed.detail


def test_every_reason_has_an_example() -> None:
    assert {reason for _, reason in FAILED.values()} | {F.ACCESS_NOT_EARLIER} == set(F)


def test_exact_form_that_the_policy_learns() -> None:
    assert TWO.render() == PLAIN
    assert Workflow(()).render() == "model_id = []\nsubtasks = []\naccess_list = []"


@pytest.mark.parametrize(
    ("access", "wanted"),
    [
        ("[[], [0]]", (0,)),
        ('[[], ["all"]]', "all"),
        ("[[], [1]]", F.ACCESS_NOT_EARLIER),
        ("[[], [-1]]", F.ACCESS_NOT_EARLIER),
        ("[[], [0, 0]]", F.BAD_ACCESS),
        ('[[], ["0"]]', F.BAD_ACCESS),
        ('[[], [0, "all"]]', F.BAD_ACCESS),
        ("[[], 0]", F.BAD_ACCESS),
    ],
)
def test_fine_grained_access(access: str, wanted: object) -> None:
    parsed = parse(lists("[2, 1]", '["a", "b"]', access), offered=6, access="fine_grained")
    if isinstance(wanted, F):
        assert parsed.failure == wanted
    else:
        assert parsed.workflow is not None
        assert parsed.workflow.steps[1].access == wanted


def test_a_recursive_round_may_keep_the_answer_or_write_anew() -> None:
    empty = lists("[]", "[]", "[]")
    kept = parse(empty, offered=6, recursive=True).workflow
    assert kept is not None
    assert kept.is_empty
    assert parse(ONE_TEXT, offered=6, recursive=True).workflow == ONE
    assert parse(lists("[]", "[]", "[[]]"), offered=6, recursive=True).failure == F.LENGTH_MISMATCH


def test_what_is_offered_and_how_long_are_the_callers_choice() -> None:
    assert parse(ONE_TEXT, offered=2).failure == F.UNKNOWN_WORKER
    assert parse(PLAIN, offered=6, max_steps=1).failure == F.TOO_MANY_STEPS
