"""Claims of usage that no provider can mean, and the bookings that they must lead to."""

from __future__ import annotations

import json

from ops.config import Worker
from ops.workers.providers import max_prompt_tokens
from tests.faults.remote import user

ASK = user("What is 2+2?")
MOST = max_prompt_tokens(Worker(name="remote", model="openai/x"), ASK)
ANSWER = "The answer is 4."


def reply(usage: object, text: str = ANSWER, finish_reason: str = "stop") -> str:
    """Return an order for the server: a whole answer with that usage; "none": without one."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "some-model", "choices": [choice]}
    return json.dumps({"status": 200, "body": body if usage == "none" else body | {"usage": usage}})


def counts(prompt: object, completion: object, **more: object) -> dict[str, object]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


IMPOSSIBLE = {
    "negative prompt": (counts(-500, 5), "-500 prompt tokens", (MOST, 5)),
    "negative completion": (counts(10, -12_990_000), "-12990000 completion tokens", (10, 64)),
    "10^9 completion": (counts(10, 10**9), "1000000000 completion tokens", (10, 64)),
    "10^9 prompt": (counts(10**9, 5), "1000000000 prompt tokens", (MOST, 5)),
    "2^63": (counts(2**63, 5), "9223372036854775808 prompt tokens", (MOST, 5)),
    "600 digits": (counts(10, int("9" * 600)), "999999999999999999999999… completion tokens", (10, 64)),
    "both": (counts(-1, -1), "-1 prompt tokens", (MOST, 64)),
    "hidden reasoning of 10^6": (
        counts(10, 5, completion_tokens_details={"reasoning_tokens": 10**6}), "1000005 completion tokens", (10, 64)
    ),
}  # fmt: skip
