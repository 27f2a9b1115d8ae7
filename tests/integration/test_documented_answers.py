"""Every question that README, docs, the model card and the agent's example show is asked of the quickstart's champion.

The champion is that of the recipe as it is shipped, trained once in a test session (five minutes on two quiet cores):
a smaller policy would prove nothing about what a reader sees.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ops.core.workspace import Workspace
from ops.release.model_card import CARD_FILE, USAGE
from ops.release.new_version import INPUT_EXAMPLE
from tests.bench import pictures
from tests.command import PODIUM, tried
from tests.conftest import make_project
from tests.integration.documented import ROOT
from tests.once import made_once
from tests.serving.running import Running

OUTSIDE = "outside of what this version was trained on"
ANSWERS = {
    "What is 6 * 7?": "42",
    "What is the density of iron?": "7.87 g/cm^3",
    "2 + 3 = ?": "5",
    pictures.QUESTION: pictures.ANSWER,
    "Ana is taller than Bo. Chen is shorter than Bo. Dara is taller than Ana. Who is the tallest?": "Dara",
    "Why is the sky blue?": OUTSIDE,
}
"""Question → what its answer ends with, or `OUTSIDE` for one on which the champion must say so."""
SUMS = {
    "17 times 23": "391", "Calculate 12 + 30.": "42", "what's 144 divided by 12?": "12", "How much is 15 - 7?": "8",
    "3 × 4": "12", "144 ÷ 12 = ?": "12", "What is 1,234 * 5,678?": "7006652", "Add 12 to 30.": "42",
    "What is the difference between 100 and 58?": "42", "What is seventeen times twenty-three?": "391",
}  # fmt: skip
"""Further sums in ordinary words."""
IN_WORDS = "What is seventeen times twenty-three?"
"""A sum whose numbers are words, which no training question has: the answer is right, and the notice is given."""
PAGES = (ROOT / "README.md", ROOT / "mlflow" / "README.md", ROOT / "Makefile", *sorted((ROOT / "docs").glob("*.md")))
PATTERNS = (
    r'podium ask "([^"…]+)"',
    r'"content": "([^"]+)"',
    r'"question": "([^"]+)"(?!, "answer")',  # with an answer it is a row of somebody's own data
    r'\bQ="([^"…]+)"',
)  # fmt: skip

TRAINS_S = 5400
"""Seconds: a safeguard, since the first of these tests trains the champion."""
PICTURE = ROOT / "docs" / "images" / "terminal.svg"


def shown() -> set[str]:
    """Return every question that a page, the model card or the agent's example shows."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES] + [USAGE, json.dumps(INPUT_EXAMPLE)]
    found = {question for text in texts for pattern in PATTERNS for question in re.findall(pattern, text)}
    return {" ".join(question.split()) for question in found}


def test_every_question_that_is_shown_has_its_answer_here() -> None:
    assert {"What is 6 * 7?", "What is the density of iron?"} < shown() <= ANSWERS.keys()


def test_the_picture_of_the_terminal_shows_a_question_of_the_readme_and_its_answer() -> None:
    drawn = re.sub(r"&#160;|\s+", " ", "".join(re.findall(r">([^<]*)</text>", PICTURE.read_text(encoding="utf-8"))))
    asked = next(question for question in ANSWERS if question in drawn.replace("&quot;", '"').replace("  ", " "))
    assert f'podium ask "{asked}"' in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Answer: {ANSWERS[asked]}" in drawn


# ── with the quickstart's champion ───────────────────────────────────────────


def _trained(root: Path) -> None:
    make_project(root)
    # Beside other tests two threads would mostly wait for each other.
    environment = os.environ | {"PODIUM_ROOT": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*PODIUM, "run", "quickstart"], cwd=root, env=environment, timeout=TRAINS_S - 60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "models:/conductor@champion is version 1" in done.stdout, done.stdout + done.stderr


@pytest.fixture(scope="module")
def champion() -> Workspace:
    return Workspace(made_once("quickstart", _trained))


@pytest.fixture(scope="module")
def server(champion: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    command = (*PODIUM, "serve", "--port", "0")
    folder = tmp_path_factory.mktemp("served")
    with Running(folder, None, command, PODIUM_ROOT=str(champion.root)) as running:  # type: ignore[arg-type]
        yield running


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(TRAINS_S)
@pytest.mark.parametrize(("question", "answer"), {**ANSWERS, **SUMS}.items())
def test_podium_ask_gives_the_answer(champion: Workspace, question: str, answer: str) -> None:
    done = tried("ask", question, PODIUM_ROOT=str(champion.root), COLUMNS="200")
    assert done.exit_code == 0, done.output
    printed = " ".join(done.output.split())
    assert (OUTSIDE in printed) is (answer == OUTSIDE or question == IN_WORDS), printed
    if answer != OUTSIDE:
        assert f"Answer: {answer} " in printed.rpartition("╭─ answer")[2], printed


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(TRAINS_S)
def test_the_examples_of_the_page_on_serving_answer(server: Running) -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    [body] = re.findall(r"-H 'content-type: application/json' -d '(\{.*?\})'", page, re.DOTALL)
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=json.loads(body), trust_env=False, timeout=120).json()
    [asked] = re.findall(PATTERNS[1], body)
    assert reply["choices"][0]["message"]["content"].endswith(ANSWERS[asked])
    assert reply["podium"]["notice"] == "" and reply["podium"]["steps"]
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "http://127.0.0.1:5001" in code
    done = subprocess.run(
        [sys.executable, "-c", code.replace("http://127.0.0.1:5001", server.url)],
        capture_output=True, text=True, timeout=240, check=True, env=os.environ | {"NO_PROXY": "*"},
    )  # fmt: skip
    assert f"Answer: {ANSWERS[asked]}" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(TRAINS_S)
def test_a_question_outside_of_the_training_has_a_notice_and_its_content_is_the_answer_alone(server: Running) -> None:
    asked = next(question for question, answer in ANSWERS.items() if answer == OUTSIDE)
    body = {"model": "conductor", "messages": [{"role": "user", "content": asked}]}
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, trust_env=False, timeout=120).json()
    assert OUTSIDE in reply["podium"]["notice"]
    assert OUTSIDE not in reply["choices"][0]["message"]["content"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(TRAINS_S)
def test_the_model_cards_request_and_the_agents_example_answer(champion: Workspace, server: Running) -> None:
    [card] = champion.mlflow_artifacts.glob(f"models/*/artifacts/{CARD_FILE}")
    text = card.read_text(encoding="utf-8")
    assert USAGE in text and "the response says in `notice`" in text
    [body] = re.findall(r"-d '(\{.*?\})'", text)
    assert json.loads(body) == INPUT_EXAMPLE
    asked = INPUT_EXAMPLE | {"model": "conductor"}
    reply = httpx.post(f"{server.url}/v1/responses", json=asked, trust_env=False, timeout=120).json()
    assert reply["output"][-1]["content"][0]["text"].endswith(ANSWERS["What is 6 * 7?"])
    code = re.findall(r"```python\n(.*?)```", (ROOT / "mlflow" / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    there = "sqlite:////path/to/podium/.podium/mlflow/mlflow.db"
    assert there in code
    *lines, last = textwrap.dedent(code).replace(there, champion.mlflow_uri).strip().splitlines()
    lines = [f"print({line.partition('  #')[0]})" if line.startswith('answer["output"]') else line for line in lines]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, last])], env=os.environ | {"PODIUM_ROOT": str(champion.root)},
        capture_output=True, text=True, timeout=240, check=True, cwd=champion.root,
    )  # fmt: skip
    assert done.stdout.strip().endswith(f"Answer: {ANSWERS['What is 6 * 7?']}")
