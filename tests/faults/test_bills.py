"""The cap holds by the provider's bill, whatever the provider bills besides two counts of tokens at two rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.bills import CASES, spend
from tests.faults.remote import FaultServer


@pytest.mark.parametrize("name", CASES)
def test_what_is_booked_is_what_the_provider_bills(server: FaultServer, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    spent = spend(case, server, tmp_path)
    print(f"| {name} | {case.cap_usd:.2f} | {spent.calls} | {spent.booked_usd:.4f} | {spent.billed_usd:.4f} |")
    assert spent.calls > 3
    assert spent.booked_usd == pytest.approx(spent.billed_usd, rel=1e-9)
    assert spent.billed_usd <= case.cap_usd
