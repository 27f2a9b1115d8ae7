"""No verdict on a choice depends on its letter: A is an article and I a pronoun, and both must be read like C."""

from __future__ import annotations

import itertools

import pytest

from ops.core.problem import Problem
from ops.grading import grade
from ops.grading.graders.choice import extracted

LETTERS = "ABCDEFGHIJ"
TEXTS = ("copper", "silver", "tin", "zinc", "nickel", "lead", "cobalt", "mercury", "platinum", "tungsten")
SETTLED = (
    "Thus, {X} is the correct answer.",
    "{X} is the correct answer.",
    "{X} is correct.",
    "Therefore {X} is right.",
    "So {X} is the best option.",
    "Hence {X} must be the answer.",
    "I think {X} is the answer.",
    "Clearly, {X} is the answer.",
    "The answer is {X}.",
    "The answer is {X}",
    "The answer is {X} because the others fail.",
    "The answer is ({X}).",
    "The correct answer is {X}, not {Y}.",
    "The correct option is {X}.",
    "The best choice is {X}: it fits.",
    "The answer must be {X}.",
    "The answer is therefore {X}.",
    "The final answer is: {X}",
    "My answer is {X}!",
    "Answer: {X}",
    "Answer:{X}",
    "answer: {X}.",
    "ANSWER: {X}",
    "**Answer: {X}**",
    "**Answer:** {X}",
    "Answer: **{X}**",
    "Answer: ({X})",
    "Answer: [{X}]",
    "Answer: '{X}'",
    'Answer: "{X}"',
    "Answer: `{X}`",
    "Answer: {X})",
    "Answer: {X}.",
    "Answer: Option {X}",
    "Answer: option ({X})",
    "Answer: {X} is right",
    "Answer: {X}, since {Y} and {Z} fail",
    "Answer: {X} because {Y} fails",
    "Answer: {X} (not {Y})",
    "Answer: {X} - the only one left",
    "Answer - {X}",
    "Answer: $\\text{{{X}}}$",
    "Answer: $\\boxed{{{X}}}$",
    "\\boxed{{{X}}}",
    "\\boxed{{\\text{{{X}}}}}",
    "$\\boxed{{\\mathrm{{({X})}}}}$",
    "<answer>{X}</answer>",
    "<answer>\n{X}\n</answer>",
    "<final_answer>({X})</final_answer>",
    '{{"answer": "{X}"}}',
    "{{'answer': '{X}'}}",
    '```json\n{{"reasoning": "as above", "final_answer": "{X}"}}\n```',
    "{X}",
    "{X}.",
    "({X})",
    "**{X}**",
    "**({X})**",
    "`{X}`",
    '"{X}"',
    "{X}\n\nBecause {Y} is false",
    "{X}\n\nBecause {Y} is false and {Z} is unrelated.",
    "{X}.\n\nThe others are wrong.",
    "Some thoughts on this.\n\n{X}",
    "Some thoughts on this.\n\n**{X}**",
    "### Answer\n{X}",
    "**Final Answer**\n\n{X}",
    "## Final answer:\n\n({X})",
    "I choose {X}.",
    "I would pick {X}.",
    "I'd go with {X}.",
    "I select option {X}.",
    "So I settle on {X}.",
    "We choose {X}",
    "It's {X}.",
    "It is {X}.",
    "So, {X}.",
    "Therefore, option {X}.",
    "Hence ({X}).",
    "This leaves {X}.",
    "That leaves only {X}.",
    "We are left with {X}.",
    "{Y} is wrong. {X} is right.",
    "{Y} and {Z} are wrong, so {X} is the answer.",
    "{X} is right. {Y} is wrong.",
    "Not {Y}. It must be {X}.",
    "Answer: {Y}? No: {X}.",
    "Answer: {Y}. Wait, no: the answer is {X}.",
    "Answer: {Y}\nWait, I made a mistake. The correct answer is {X}.",
    "Answer: {Y}\n\nActually, {X} is correct.",
    "Answer: {Y}\nAnswer: {X}",
    "The answer is {Y}. No, the answer is {X}.",
    "I first thought the answer is {Y}, but it is {X}.",
    "At first {Y} seems right. However, the answer is {X}.",
    "{Y} is tempting, but {X} is correct.",
    "Between {Y} and {X}, I choose {X}.",
    "Considering {Y} and {Z}, I choose {X}",
    "{Y}: no. {Z}: no. {X}: yes.",
    "Option {Y} is incorrect. Option {X} is correct.",
    "({Y}) is incorrect; ({X}) is correct.",
    "Answer: {Y} is wrong. {X} is right.",
    "If it were warmer, the answer is {Y}. Here the answer is {X}.",
    "So {X} it is.",
    "Réponse : {X}",
    "Antwort: {X}",
    "Respuesta: {X}",
    "答案:{X}",
    "答案是{X}。",
    "Ответ: {X}",
    "正解は{X}です。",
    "La respuesta correcta es {X}.",
    "I can rule out {Y} and {Z}. The answer is {X}.",
    "Eliminating {Y}, I get {X}. Answer: {X}",
)
UNSETTLED = (
    "Answer: {X} or {Y}",
    "Answer: {X}/{Y}",
    "Answer: {X} and {Y}",
    "Answer: {X}, {Y}",
    "Answer: {X} & {Y}",
    "Answer: {X} (or {Y})",
    "Answer: either {X} or {Y}",
    "Answer: not {X}",
    "The answer is not {X}.",
    "The answer isn't {X}.",
    "It could be {X} or {Y}.",
    "Both {X} and {Y} are correct.",
    "Neither {X} nor {Y} is correct.",
    "{X} is wrong.",
    "{X} is incorrect.",
    "{X} cannot be right.",
    "Answer: {X} is wrong.",
    "Answer: none of {X}, {Y} or {Z}",
    "I am torn between {X} and {Y}.",
    "{X}, {Y} and {Z} are all plausible.",
    "{X} or {Y}",
    "{X}, {Y}",
    "The answer is {X} or {Y}.",
    "Perhaps {X}, perhaps {Y}.",
    "I rule out {X}.",
    "<answer>{X} or {Y}</answer>",
    "\\boxed{{{X}, {Y}}}",
    "Answer: between {X} and {Y}",
    "Answer: {X}? Or {Y}?",
    "One of {X}, {Y}, {Z}.",
    "{X}\n{Y}\n{Z}",
    "Answer: ({X})({Y})({Z})",
    "Answer: ({X}) ({Y})",
    "Answer: [{X}][{Y}]",
    "Answer: {X}; {Y}",
    "Answer: {X}|{Y}",
    "Answer: {X} {Y} {Z}",
    "Answer: {X}. {Y}. {Z}.",
    "Answer: **{X}** **{Y}**",
    "The answer is ({X})({Y})({Z}).",
    "I choose ({X})({Y}).",
    "So it is ({X}) ({Y}).",
    "\\boxed{{({X})({Y})({Z})}}",
)


def verdicts(shape: str, *, choices: tuple[str, ...]) -> dict[str, str]:
    """Letter → what is read of the shape with this letter as X, said as a role: X, Y, Z or nothing."""
    readings = {}
    for place, letter in enumerate(LETTERS):
        others = [LETTERS[(place + step) % len(LETTERS)] for step in (3, 7)]
        roles = {letter: "X", others[0]: "Y", others[1]: "Z", "": ""}
        response = shape.format(X=letter, Y=others[0], Z=others[1])
        case = Problem("p", "mmlu", "mmlu", "test", "Which?", letter, "choice", choices)
        read = extracted(case, response)
        readings[letter] = roles.get(read, read)
        assert grade(case, response).correct is (read == letter)
    return readings


@pytest.mark.parametrize("choices", [(), TEXTS], ids=["letters alone", "with their texts"])
@pytest.mark.parametrize(("shapes", "role"), [(SETTLED, "X"), (UNSETTLED, "")], ids=["settled", "unsettled"])
def test_every_letter_is_read_alike(shapes: tuple[str, ...], role: str, choices: tuple[str, ...]) -> None:
    for shape in shapes:
        assert verdicts(shape, choices=choices) == dict.fromkeys(LETTERS, role), shape


def test_a_letter_that_is_not_a_choice_is_not_read_as_one() -> None:
    for sentence in ("{X} glucose is a sugar.", "vitamin {X} is found in fruit", "hepatitis {X} is a disease",
                     "{X} good reason to wait", "{X} sound wave"):  # fmt: skip
        assert verdicts(sentence, choices=TEXTS) == dict.fromkeys(LETTERS, ""), sentence


def test_an_article_and_a_pronoun_are_no_letters() -> None:
    case = Problem("p", "mmlu", "mmlu", "test", "Which?", "I", "choice", TEXTS)
    for sentence in ("I think so.", "I cannot answer this.", "I am not sure.", "A hard question."):
        assert extracted(case, sentence) == "", sentence
    assert extracted(case, "A") == "A"


def test_every_pair_of_letters_is_read_alike() -> None:
    """The commonest correction and denial, for all ninety ordered pairs."""
    for left, right in itertools.permutations(LETTERS, 2):
        case = Problem("p", "mmlu", "mmlu", "test", "Which?", right, "choice", TEXTS)
        for shape in ("{} is wrong. {} is right.", "Answer: {}? No: {}.", "Not {}, but {}.", "Answer: {}\nAnswer: {}"):
            assert extracted(case, shape.format(left, right)) == right, (shape, left, right)


@pytest.mark.parametrize(
    "part",
    ["Answer: A ", "A or ", "**A** ", "<answer>", "A) x\n", "A\n", "\\boxed{", " ", "A (", "the answer is ", "~~", "…",
     "A. Not "],
)  # fmt: skip
def test_a_long_repetition_is_read_once(part: str) -> None:
    """Linear: what a hostile response could make quadratic would not end within the suite's time-out."""
    case = Problem("p", "mmlu", "mmlu", "test", "Which?", "A", "choice", TEXTS)
    assert extracted(case, part * (200_000 // len(part))) in ("", *LETTERS)
