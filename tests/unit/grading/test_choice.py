"""Multiple choice: the letter that a response settles on, none if it hedges, and the same verdict for every letter."""

from __future__ import annotations

import itertools

import pytest

from ops.core.problem import Problem
from ops.grading import grade
from ops.grading.graders.choice import find_answer
from tests.builders import make_problem
from tests.unit.grading.forms import wrappings

CITIES = ("Paris", "London", "a cat", "New York")


def problem(answer: str, choices: tuple[str, ...]) -> Problem:
    return make_problem(grader="choice", answer=answer, choices=choices)


def accepted(response: str, choices: tuple[str, ...] = CITIES) -> str:
    """The letters that the response is right for."""
    return "".join(letter for letter in "ABCD" if grade(problem(letter, choices), response).correct)


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("**Answer:** (C)", "C"),
        ("(c)", "C"),
        ("a cat", "C"),
        ("Answer: a cat", "C"),
        ("Answer: Paris", "A"),
        ("Answer:\n\nD", "D"),
        ("A good reason to pick D", "D"),
        ("Answer: B\nBut wait.\nAnswer: C", "C"),
        ("Answer: B\nBut wait, Answer: C", "C"),
        ("It is London.", "B"),
        ("A cat sat there", "C"),
        # Denials behind a quoted choice.
        ("Answer: (B) London is wrong. C is right.", "C"),
        ("Answer: not (A) Paris but (C) a cat", "C"),
        ("(B) London is not correct; (D) New York is correct.", "D"),
        ("A. Paris is tempting, but B. London is correct.", "B"),
        ("Answer: (A) Paris, since (B) London cannot be right.", "A"),
        ("Answer: (B) London is wrong.", ""),
        ("Answer: not (B) London", ""),
        ("(B) London is not the answer.", ""),
        # Lists of quoted choices.
        ("Answer: B) London or C) a cat", ""),
        ("Answer: A) Paris, B) London", ""),
        ("Answer: A) Paris B) London C) a cat D) New York", ""),
        ("The answer is neither (A) Paris nor (B) London.", ""),
        # Remarks behind an announced letter.
        ("Answer: A\n\nIf it were in England, the answer would be B.", "A"),
        ("Answer: A\n\nThere is no river in a cat. Option B would be correct for the Thames.", "A"),
        ("Answer: A\n\nA common mistake is to say that the answer is B.", "A"),
        ("Answer: A\n\nNo other city is meant; B would be right for England.", "A"),
        ("Answer: A\n\nA common mistake is to choose B.", "A"),
    ],
)
def test_which_letter_a_response_settles_on(response: str, letter: str) -> None:
    assert accepted(response) == letter


DENYING = (
    ("Wrong, Wrong", "Wrong, Not wrong", "Not wrong, Wrong", "Not wrong, Not wrong"),
    ("Cannot be determined", "not less than 5", "false", "Invalid. Counterexample when A and C are true"),
    ("incorrect", "both A and C", "neither A nor B", "C. S. Lewis, not B. F. Skinner"),
    ("is tempting", "fails to account for C", "does not depend on A.", "No, because (A) holds"),
)
"""Choices whose texts deny something or name other letters."""
QUOTED = (
    *(f"Answer: {quote}" for quote in ("({L}) {T}", "{L}) {T}", "{L}. {T}", "{L}: {T}", "{L} - {T}", "{L} ({T})")),
    "Answer: {T} ({L})",
    "**Answer: {L}. {T}**",
    "The answer is {L}. {T}",
    "The answer is {L}, {T}.",
    "The correct answer is **({L}) {T}**.",
    "So the correct option is {L}: {T}",
    "Therefore, {L} ({T}) is correct.",
    "{L}) {T}",
    "We think.\n\n{L}. {T}",
    "<answer>{L}. {T}</answer>",
    '{{"answer": "{L}. {T}"}}',
    "\\boxed{{\\text{{({L}) {T}}}}}",
    "\\boxed{{\\textbf{{({L})}}\\ \\text{{{T}}}}}",
)


@pytest.mark.parametrize("form", QUOTED)
@pytest.mark.parametrize("choices", DENYING, ids=[choices[0] for choices in DENYING])
def test_the_text_of_a_choice_denies_no_letter(choices: tuple[str, ...], form: str) -> None:
    responses = [form.format(L=letter, T=text) for letter, text in zip("ABCD", choices, strict=True)]
    assert [accepted(response, choices) for response in responses] == list("ABCD")


# ── every letter: A is an article and I a pronoun, and both must be read like C ──

LETTERS = "ABCDEFGHIJ"
TEXTS = ("copper", "silver", "tin", "zinc", "nickel", "lead", "cobalt", "mercury", "platinum", "tungsten")
SETTLED = {
    "the forms' wrappings": [template.replace("{answer}", "{X}") for template in wrappings("choice_wrappings")],
    "the letter is the subject": [
        "{X} is the correct answer.", "{X} is correct.", "Therefore {X} is right.", "So {X} is the best option.",
        "Hence {X} must be the answer.", "I think {X} is the answer.", "Clearly, {X} is the answer.",
    ],
    "the answer is the subject": [
        "The answer is {X}", "The answer is {X} because the others fail.", "The answer is ({X}).",
        "The correct answer is {X}, not {Y}.", "The correct option is {X}.", "The best choice is {X}: it fits.",
        "The answer must be {X}.", "The answer is therefore {X}.", "The final answer is: {X}", "My answer is {X}!",
    ],
    "announced": [
        "Answer:{X}", "answer: {X}.", "ANSWER: {X}", "Answer: **{X}**", "Answer: ({X})", "Answer: [{X}]",
        "Answer: '{X}'", 'Answer: "{X}"', "Answer: `{X}`", "Answer: {X})", "Answer: {X}.", "Answer: Option {X}",
        "Answer: option ({X})", "Answer: {X} is right", "Answer: {X}, since {Y} and {Z} fail",
        "Answer: {X} because {Y} fails", "Answer: {X} (not {Y})", "Answer: {X} - the only one left", "Answer - {X}",
        "Answer: $\\text{{X}}$", "Answer: $\\boxed{{X}}$",
    ],
    "marked up": [
        "\\boxed{\\text{{X}}}", "$\\boxed{\\mathrm{({X})}}$", "<answer>\n{X}\n</answer>",
        "<final_answer>({X})</final_answer>", "{'answer': '{X}'}",
        '```json\n{"reasoning": "as above", "final_answer": "{X}"}\n```',
    ],
    "bare": [
        "{X}.", "**({X})**", "`{X}`", '"{X}"', "{X}\n\nBecause {Y} is false",
        "{X}\n\nBecause {Y} is false and {Z} is unrelated.", "{X}.\n\nThe others are wrong.",
        "Some thoughts on this.\n\n{X}", "Some thoughts on this.\n\n**{X}**", "### Answer\n{X}",
        "**Final Answer**\n\n{X}", "## Final answer:\n\n({X})",
    ],
    "chosen": [
        "I choose {X}.", "I would pick {X}.", "I select option {X}.", "So I settle on {X}.", "We choose {X}",
        "It's {X}.", "It is {X}.", "So, {X}.", "Therefore, option {X}.", "Hence ({X}).", "This leaves {X}.",
        "That leaves only {X}.", "We are left with {X}.", "So {X} it is.",
    ],
    "beside other letters": [
        "{Y} is wrong. {X} is right.", "{Y} and {Z} are wrong, so {X} is the answer.", "{X} is right. {Y} is wrong.",
        "Not {Y}. It must be {X}.", "I first thought the answer is {Y}, but it is {X}.",
        "At first {Y} seems right. However, the answer is {X}.", "{Y} is tempting, but {X} is correct.",
        "Between {Y} and {X}, I choose {X}.", "Considering {Y} and {Z}, I choose {X}", "{Y}: no. {Z}: no. {X}: yes.",
        "Option {Y} is incorrect. Option {X} is correct.", "({Y}) is incorrect; ({X}) is correct.",
        "If it were warmer, the answer is {Y}. Here the answer is {X}.",
        "I can rule out {Y} and {Z}. The answer is {X}.", "Eliminating {Y}, I get {X}. Answer: {X}",
    ],
    "corrected": [
        "Answer: {Y}? No: {X}.", "Answer: {Y}. Wait, no: the answer is {X}.", "Answer: {Y}\nAnswer: {X}",
        "Answer: {Y}\nWait, I made a mistake. The correct answer is {X}.", "Answer: {Y}\n\nActually, {X} is correct.",
        "The answer is {Y}. No, the answer is {X}.", "Answer: {Y} is wrong. {X} is right.",
    ],
    "in other languages": ["Antwort: {X}", "Respuesta: {X}", "答案是{X}。", "Ответ: {X}", "正解は{X}です。"],
}  # fmt: skip
"""Responses with the letter X, and with others Y and Z, whose answer is X; in UNSETTLED there is none."""
UNSETTLED = {
    "denied": [
        "Answer: not {X}", "The answer is not {X}.", "The answer isn't {X}.", "{X} is wrong.", "{X} is incorrect.",
        "Neither {X} nor {Y} is correct.", "{X} cannot be right.", "Answer: {X} is wrong.", "I rule out {X}.",
        "Answer: none of {X}, {Y} or {Z}",
    ],
    "alternatives": [
        "Answer: {X} or {Y}", "Answer: {X}/{Y}", "Answer: {X} (or {Y})", "Answer: either {X} or {Y}",
        "It could be {X} or {Y}.", "I am torn between {X} and {Y}.", "{X} or {Y}", "The answer is {X} or {Y}.",
        "Perhaps {X}, perhaps {Y}.", "<answer>{X} or {Y}</answer>", "Answer: between {X} and {Y}",
        "Answer: {X}? Or {Y}?", "One of {X}, {Y}, {Z}.",
    ],
    "several": [
        "Answer: {X} and {Y}", "Answer: {X}, {Y}", "Answer: {X} & {Y}", "Both {X} and {Y} are correct.",
        "{X}, {Y} and {Z} are all plausible.", "{X}, {Y}", "\\boxed{{X}, {Y}}", "{X}\n{Y}\n{Z}",
        "Answer: ({X})({Y})({Z})", "Answer: ({X}) ({Y})", "Answer: [{X}][{Y}]", "Answer: {X}; {Y}", "Answer: {X}|{Y}",
        "Answer: {X} {Y} {Z}", "Answer: {X}. {Y}. {Z}.", "Answer: **{X}** **{Y}**", "The answer is ({X})({Y})({Z}).",
        "I choose ({X})({Y}).", "So it is ({X}) ({Y}).", "\\boxed{({X})({Y})({Z})}",
    ],
    "not a choice": [
        "{X} glucose is a sugar.", "vitamin {X} is found in fruit", "hepatitis {X} is a disease",
        "{X} good reason to wait", "{X} sound wave",
    ],
}  # fmt: skip
SHAPES = [
    pytest.param(shape, "X" if groups is SETTLED else "", choices, id=f"{group}-{shape}-{name}")
    for groups in (SETTLED, UNSETTLED)
    for group, shapes in groups.items()
    for shape in shapes
    for name, choices in (("letters alone", ()), ("with their texts", TEXTS))
    if choices or group != "not a choice"
]


@pytest.mark.parametrize(("shape", "role", "choices"), SHAPES)
def test_every_letter_is_read_alike(shape: str, role: str, choices: tuple[str, ...]) -> None:
    """`role`: the letter that is read, said as X, Y or Z."""
    read = {}
    for place, letter in enumerate(LETTERS):
        others = [LETTERS[(place + step) % len(LETTERS)] for step in (3, 7)]
        response = shape.replace("{X}", letter).replace("{Y}", others[0]).replace("{Z}", others[1])
        found = find_answer(problem(letter, choices), response)
        read[letter] = {letter: "X", others[0]: "Y", others[1]: "Z"}.get(found, found)
        assert grade(problem(letter, choices), response).correct is (found == letter)
    assert read == dict.fromkeys(LETTERS, role)


@pytest.mark.parametrize(
    ("sentence", "letter"),
    [("I think so.", ""), ("I cannot answer this.", ""), ("I am not sure.", ""), ("A hard question.", ""), ("A", "A")],
)
def test_an_article_and_a_pronoun_are_no_letters(sentence: str, letter: str) -> None:
    assert find_answer(problem("I", TEXTS), sentence) == letter


@pytest.mark.parametrize(
    "shape", ["{} is wrong. {} is right.", "Answer: {}? No: {}.", "Not {}, but {}.", "Answer: {}\nAnswer: {}"]
)
def test_every_pair_of_letters_is_read_alike(shape: str) -> None:
    """The commonest corrections and denials, for all ninety ordered pairs."""
    pairs = list(itertools.permutations(LETTERS, 2))
    assert [pair for pair in pairs if find_answer(problem("A", TEXTS), shape.format(*pair)) != pair[1]] == []


@pytest.mark.parametrize(
    "part",
    ["Answer: A ", "A or ", "**A** ", "<answer>", "A) x\n", "A\n", "\\boxed{", " ", "A (", "the answer is ", "~~", "…",
     "A. Not "],
)  # fmt: skip
def test_a_long_repetition_is_read_once(part: str) -> None:
    """Linear: what a hostile response could make quadratic would not end within the suite's time-out."""
    assert find_answer(problem("A", TEXTS), part * (200_000 // len(part))) in ("", *LETTERS)
