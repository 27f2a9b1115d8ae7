"""The causes of an error."""

from __future__ import annotations

from itertools import islice

import pytest

from ops.core.errors import iterate_causes


class DriverError(Exception):
    """Holds a driver's error in `orig`, as SQLAlchemy's errors do."""

    def __init__(self, orig: Exception) -> None:
        super().__init__()
        self.orig = orig


def test_causes_go_before_contexts() -> None:
    error, cause, context, first = RuntimeError(), ValueError(), KeyError(), OSError()
    error.__cause__, error.__context__, cause.__context__ = cause, context, first
    assert list(iterate_causes(error)) == [error, cause, first]


def test_a_drivers_error_is_followed_only_on_request() -> None:
    orig, context = ValueError(), KeyError()
    error = DriverError(orig)
    error.__context__ = context
    assert list(iterate_causes(error)) == [error, context]
    assert list(iterate_causes(error, drivers=True)) == [error, orig]


@pytest.mark.parametrize("errors", [[OSError()], [OSError(), ValueError()], [OSError(), ValueError(), KeyError()]])
def test_a_cycle_of_contexts_ends(errors: list[Exception]) -> None:
    for error, context in zip(errors, [*errors[1:], errors[0]], strict=True):
        error.__context__ = context
    assert list(islice(iterate_causes(errors[0]), 9)) == errors
