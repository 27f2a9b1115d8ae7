"""Requests: which are valid, and which field an error names."""

from __future__ import annotations

from typing import Any

import pytest

from ops.core.errors import ConfigError
from ops.grading import worker_prompt
from ops.serving.http.access import TOKENS_VARIABLE, AccessControl
from ops.serving.openai import chat, responses
from ops.serving.openai.agent import AgentExchange
from ops.serving.openai.conversation import format_conversation
from ops.serving.openai.errors import ApiError
from ops.serving.request_options import RequestError, RequestOptions, UnknownModelError, make_problem, read_options


def test_a_plain_question() -> None:
    problem = make_problem("  What is the density of iron? ", RequestOptions())
    asked = (problem.question, problem.grader, problem.choices, problem.answer)
    assert asked == ("What is the density of iron?", "open", (), "")
    assert worker_prompt(problem) == "What is the density of iron?", "no form of answer is asked for"


def test_choices_make_it_a_choice_question() -> None:
    assert make_problem("Which?", read_options({"choices": ["this", "that"]}, "podium")).grader == "choice"
    both = read_options({"choices": ["this", "that"], "grader": "math"}, "podium")
    assert make_problem("Which?", both).grader == "math"


@pytest.mark.parametrize(
    ("text", "inputs", "field"),
    [
        (" \n", {}, "input"),
        ("Which?", {"budget_usd": True}, r"custom_inputs\.budget_usd"),
        ("Which?", {"deadline_s": "5"}, r"custom_inputs\.deadline_s"),
        ("Which?", {"deadline_s": float("inf")}, r"custom_inputs\.deadline_s"),
        ("Which?", {"workflow": "false"}, r"custom_inputs\.workflow"),
        ("Which?", {"execute": 0}, r"custom_inputs\.execute"),
        ("Which?", {"forbidden": ["\udc00"]}, r"custom_inputs\.forbidden\[0\]: has half of a surrogate pair .U.DC00"),
        ("Which?", {"choices": ["a", "b\ud83d"]}, r"custom_inputs\.choices\[1\]"),
        ("Which\ud83d?", {}, r"input\[0\]\.content"),
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
def test_invalid_requests(text: str, inputs: Any, field: str) -> None:
    with pytest.raises(RequestError, match=field):
        AgentExchange({"input": [{"role": "user", "content": text}], "custom_inputs": inputs})


def test_a_conversation_is_put_above_its_last_question() -> None:
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "What is 1 + 1?"},
        {"role": "assistant", "content": "2"},
        {"type": "reasoning", "summary": []},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "input_text", "text": "twice that?"}]},
    ]
    assert format_conversation(messages, "messages") == (
        "Instructions:\nBe short.\n\nUser:\nWhat is 1 + 1?\n\nAssistant:\n2\n\nQuestion:\nAnd\ntwice that?"
    )
    assert format_conversation(messages[1:2], "messages") == "What is 1 + 1?"


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "does not end with a user message"),
        ([{"role": "assistant", "content": "hm"}], "does not end with a user message"),
        ([{"role": "critic", "content": "4"}], r"messages\[0\]\.role: is 'critic'"),
        ([{"role": ["user"], "content": "4"}], r"messages\[0\]\.role: is "),
        ([{"role": "assistant", "content": 4}, {"role": "user", "content": "?"}], r"messages\[0\]\.content"),
        ([{"role": "assistant", "tool_calls": 4}, {"role": "user", "content": "?"}], r"messages\[0\]\.tool_calls"),
        ([{"role": "assistant", "tool_calls": [4]}, {"role": "user", "content": "?"}], r"tool_calls\[0\]"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"content\[0\]: is 'image_url', not text"),
        ([{"role": "user", "content": None}], r"content: is neither"),
        (["hello"], r"messages\[0\]: is not an object"),
    ],
)
def test_conversations_without_a_question(messages: list[object], problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        format_conversation(messages, "messages")


def test_turns_that_called_tools_may_have_no_text() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "density", "arguments": '{"of": "iron"}'}}
    messages = [
        {"role": "user", "content": "What is the density of iron?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "7.87"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "In which unit?"},
    ]
    assert format_conversation(messages, "messages") == (
        'User:\nWhat is the density of iron?\n\nAssistant:\nCalled density({"of": "iron"})\n\n'
        "Tool result:\n7.87\n\nQuestion:\nIn which unit?"
    )


CHAT = {"model": "conductor", "messages": [{"role": "user", "content": "Why?"}]}
RESPONSE = {"model": "conductor", "input": "Why?"}
CHAT_REFUSED = {
    "n": 2, "stop": ["\n"], "logit_bias": {"50256": -100}, "presence_penalty": 0.5, "frequency_penalty": -1,
    "logprobs": True, "top_logprobs": 3, "tools": [{"type": "function"}], "tool_choice": "required",
    "functions": [{"name": "f"}], "function_call": {"name": "f"}, "response_format": {"type": "xml"},
    "reasoning_effort": "high", "verbosity": "low", "modalities": ["audio"], "audio": {"voice": "alloy"},
    "web_search_options": {"a": 1}, "top_k": 4, "messages": "Why?", "stream": "false", "store": 0, "max_tokens": "5",
    "max_completion_tokens": 0, "metadata": [1], "model": None,
}  # fmt: skip
RESPONSE_REFUSED = {
    "previous_response_id": "resp_1", "text": "short", "truncation": "auto", "background": True,
    "include": ["reasoning.encrypted_content"], "max_output_tokens": True, "instructions": 5, "messages": [],
    "input": "",
}  # fmt: skip


@pytest.mark.parametrize(("changed", "field"), [
    *(({name: value}, name) for name, value in CHAT_REFUSED.items()),
    ({"n": True}, "n"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"metadata": {"team": 1}}, "metadata.team"),
    ({"podium": {"budget": 1}}, "podium.budget"),
    ({"podium": {"budget_usd": True}}, "podium.budget_usd"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": " "}]}, "messages"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "response_format"),
    ({"response_format": {"type": "json_object"}, "podium": {"grader": "math"}}, "podium.grader"),
    ({"response_format": {"type": "json_object"}, "podium": {"choices": ["a", "b"]}}, "podium.grader"),
])  # fmt: skip
def test_chat_parameters_that_are_not_honoured_are_refused_by_name(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        chat.read_request(CHAT | changed)
    assert refused.value.where == field


@pytest.mark.parametrize(("changed", "field"), [
    *(({name: value}, name) for name, value in RESPONSE_REFUSED.items()),
    ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    ({"input": [{"role": "user", "content": 1}], "instructions": "Be short."}, "input[0].content"),
])  # fmt: skip
def test_response_parameters_that_are_not_honoured_are_refused_by_name(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        responses.read_request(RESPONSE | changed)
    assert refused.value.where == field


SCHEMA = {"name": "place", "schema": {"type": "object"}, "strict": True}
JSON_SCHEMA = {"type": "json_schema", "json_schema": SCHEMA}


def test_every_route_takes_the_form_of_the_answer() -> None:
    free = {"type": "json_object"}
    assert chat.read_request(CHAT | {"response_format": free}).options.response_format == free
    asked = {"text": {"format": {"type": "json_schema", **SCHEMA}}}
    for options in (
        chat.read_request(CHAT | {"response_format": JSON_SCHEMA}).options,
        responses.read_request(RESPONSE | asked).options,
        AgentExchange({"input": [{"role": "user", "content": "Where?"}], **asked}).options,
        read_options({"response_format": JSON_SCHEMA}, "custom_inputs"),
    ):
        assert options.response_format == JSON_SCHEMA
    with pytest.raises(RequestError, match=r"custom_inputs: .*leave grader and choices out"):
        read_options({"response_format": JSON_SCHEMA, "grader": "code"}, "custom_inputs")


def test_values_that_change_no_answer_are_accepted() -> None:
    defaults = {
        "n": 1, "stop": None, "seed": 7, "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0,
        "temperature": 0, "top_p": 0.9, "logprobs": False, "top_logprobs": 0, "tools": [], "tool_choice": "auto",
        "response_format": {"type": "text"}, "reasoning_effort": None, "user": "ada", "parallel_tool_calls": True,
        "service_tier": "auto", "stream": None, "store": None, "podium": {"budget_usd": 1, "choices": None},
    }  # fmt: skip
    read = chat.read_request(CHAT | defaults | {"max_tokens": 50, "max_completion_tokens": 40})
    assert (read.problem.question, read.stream, read.store) == ("Why?", False, True)
    assert (read.options.budget_usd, read.answer_tokens) == (1.0, ("max_completion_tokens", 40))
    defaults = {"text": {"format": {"type": "text"}}, "reasoning": {"effort": None, "summary": "auto"}, "tools": []}
    asked = {"store": False, "stream": True, "metadata": {"team": "a"}, "max_output_tokens": 50}
    read = responses.read_request(RESPONSE | defaults | asked)
    assert (read.problem.question, read.stream, read.store) == ("Why?", True, False)
    assert (read.answer_tokens, read.metadata) == (("max_output_tokens", 50), {"team": "a"})
    with pytest.raises(UnknownModelError, match="'gpt-5' is not served here"):
        responses.read_request(RESPONSE | {"model": "gpt-5"})


def test_instructions_are_a_part_of_the_question() -> None:
    text = responses.read_request(RESPONSE | {"instructions": "Be short."}).problem.question
    assert text == "Instructions:\nBe short.\n\nQuestion:\nWhy?"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_beyond_this_machine_only_with_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKENS_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=rf"{TOKENS_VARIABLE}: is not set.*openssl rand"):
        AccessControl.from_environment(host)
    monkeypatch.setenv(TOKENS_VARIABLE, "short")
    with pytest.raises(ConfigError, match="fewer than 16 characters"):
        AccessControl.from_environment(host)
    monkeypatch.setenv(TOKENS_VARIABLE, "first-secret-of-two, second-secret-of-two")
    access = AccessControl.from_environment(host)
    for token in ("first-secret-of-two", "second-secret-of-two"):
        access.check_request({"authorization": f"Bearer {token}"})
    for value in ("", "Bearer", "Bearer first-secret", "Basic first-secret-of-two", "Bearer first-secret-of-two, x"):
        with pytest.raises(ApiError) as refused:
            access.check_request({"authorization": value})
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
    monkeypatch.delenv(TOKENS_VARIABLE, raising=False)
    access = AccessControl.from_environment("127.0.0.1")
    if allowed:
        access.check_request(headers)
        return
    with pytest.raises(ApiError) as refused:
        access.check_request(headers)
    assert refused.value.status == 403
