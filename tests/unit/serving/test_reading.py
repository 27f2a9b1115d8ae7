"""What requests may hold, as a person sends them and as clients do."""

from __future__ import annotations

from typing import Any

import pytest

from ops.core.errors import ConfigError
from ops.serving.http.access import TOKENS, Access
from ops.serving.openai import chat, responses
from ops.serving.openai.agent import Exchange
from ops.serving.openai.conversation import question_text
from ops.serving.openai.errors import Failure
from ops.serving.request_options import RequestError, RequestOptions, UnknownModelError, question, read_options


def test_a_plain_question() -> None:
    problem = question("  What is the density of iron? ", RequestOptions())
    asked = (problem.question, problem.grader, problem.choices, problem.answer)
    assert asked == ("What is the density of iron?", "text", (), "")


def test_choices_make_it_a_choice_question() -> None:
    assert question("Which?", read_options({"choices": ["this", "that"]}, "podium")).grader == "choice"
    both = read_options({"choices": ["this", "that"], "grader": "math"}, "podium")
    assert question("Which?", both).grader == "math"


@pytest.mark.parametrize(
    ("text", "inputs", "field"),
    [
        (" \n", {}, "input"),
        ("Which?", {"grader": "essay"}, r"custom_inputs\.grader"),
        ("Which?", {"grader": ["text"]}, r"custom_inputs\.grader"),
        ("Which?", {"choices": "this"}, r"custom_inputs\.choices"),
        ("Which?", {"choices": [1, 2]}, r"custom_inputs\.choices"),
        ("Which?", {"choices": 3}, r"custom_inputs\.choices"),
        ("Which?", {"forbiden": ["x"]}, r"custom_inputs\.forbiden.*Known keys: .*forbidden"),
        ("Which?", {"budget_usd": -1}, r"custom_inputs\.budget_usd"),
        ("Which?", {"deadline_s": 0}, r"custom_inputs\.deadline_s"),
        ("Which?", {"preference": "speed"}, r"custom_inputs\.preference"),
        ("Which?", "all", r"custom_inputs: is not an object"),
    ],
)
def test_what_cannot_be_asked(text: str, inputs: Any, field: str) -> None:
    with pytest.raises(RequestError, match=field):
        Exchange({"input": [{"role": "user", "content": text}], "custom_inputs": inputs})


def test_a_conversation_is_put_above_its_last_question() -> None:
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "What is 1 + 1?"},
        {"role": "assistant", "content": "2"},
        {"type": "reasoning", "summary": []},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "input_text", "text": "twice that?"}]},
    ]
    assert question_text(messages, "messages") == (
        "Instructions:\nBe short.\n\nUser:\nWhat is 1 + 1?\n\nAssistant:\n2\n\nQuestion:\nAnd\ntwice that?"
    )
    assert question_text(messages[1:2], "messages") == "What is 1 + 1?"


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "does not end with a user message"),
        ([{"role": "assistant", "content": "hm"}], "does not end with a user message"),
        ([{"role": "tool", "content": "4"}], r"messages\[0\]\.role: is 'tool'"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"content\[0\]: is 'image_url', not text"),
        ([{"role": "user", "content": None}], r"content: is neither"),
        (["hello"], r"messages\[0\]: is not an object"),
    ],
)
def test_conversations_without_a_question(messages: list[object], problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        question_text(messages, "messages")


CHAT = {"model": "conductor", "messages": [{"role": "user", "content": "Why?"}]}
RESPONSE = {"model": "conductor", "input": "Why?"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (CHAT | {"n": 2}, "n:"),
        (CHAT | {"tools": [{"type": "function"}]}, "tools:"),
        (CHAT | {"response_format": {"type": "json_object"}}, "response_format:"),
        (CHAT | {"messages": "Why?"}, "messages:"),
        (CHAT | {"podium": {"budget": 1}}, r"podium\.budget"),
        ({"messages": CHAT["messages"]}, "model:"),
    ],
)
def test_chats_that_would_not_be_answered_as_asked(body: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError, match=f"request: {field}"):
        chat.read(body)


def test_what_changes_nothing_is_passed_over() -> None:
    asked = chat.read(CHAT | {"n": 1, "temperature": 0.3, "max_tokens": 5, "user": "ada", "tools": [], "seed": 1})
    assert (asked.problem.question, asked.stream, asked.store) == ("Why?", False, True)
    asked = responses.read(RESPONSE | {"store": False, "stream": True, "metadata": {"team": "a"}})
    assert (asked.problem.question, asked.stream, asked.store) == ("Why?", True, False)
    with pytest.raises(RequestError, match="previous_response_id"):
        responses.read(RESPONSE | {"previous_response_id": "resp_1"})
    with pytest.raises(UnknownModelError, match="'gpt-5' is not served here"):
        responses.read(RESPONSE | {"model": "gpt-5"})


def test_instructions_are_a_part_of_the_question() -> None:
    text = responses.read(RESPONSE | {"instructions": "Be short."}).problem.question
    assert text == "Instructions:\nBe short.\n\nQuestion:\nWhy?"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_beyond_this_machine_only_with_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKENS, raising=False)
    with pytest.raises(ConfigError, match=rf"{TOKENS}: is not set.*openssl rand"):
        Access.of(host)
    monkeypatch.setenv(TOKENS, "short")
    with pytest.raises(ConfigError, match="fewer than 16 characters"):
        Access.of(host)
    monkeypatch.setenv(TOKENS, "first-secret-of-two, second-secret-of-two")
    access = Access.of(host)
    for token in ("first-secret-of-two", "second-secret-of-two"):
        access.check({"authorization": f"Bearer {token}"})
    for value in ("", "Bearer", "Bearer first-secret", "Basic first-secret-of-two", "Bearer first-secret-of-two, x"):
        with pytest.raises(Failure) as refused:
            access.check({"authorization": value})
        assert refused.value.status == 401


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"host": "127.0.0.1:5001"}, True),
        ({"host": "localhost:5001"}, True),
        ({"host": "[::1]:5001"}, True),
        ({"host": "127.0.0.1:5001", "origin": "http://localhost:3000"}, True),
        ({"host": "127.0.0.1:5001", "origin": "https://evil.example"}, False),
        ({"host": "127.0.0.1:5001", "origin": "null"}, False),
        ({"host": "rebound.evil.example:5001"}, False),
        ({}, False),
    ],
)
def test_without_tokens_pages_in_a_browser_are_not_answered(
    headers: dict[str, str], allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKENS, raising=False)
    access = Access.of("127.0.0.1")
    if allowed:
        access.check(headers)
        return
    with pytest.raises(Failure) as refused:
        access.check(headers)
    assert refused.value.status == 403
