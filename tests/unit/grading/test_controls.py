"""Controls: every assertion that is certainly reached turns into one that a correct program fails."""

from __future__ import annotations

import unittest
from random import Random

import pytest

from ops.grading.controls import control, names_of_tests

HEAD = "import unittest\nfrom unittest import mock\nclass T(unittest.TestCase):\n"
SURE = {
    "a number": "self.assertEqual(f(3), 3)",
    "the expected value first": "self.assertEqual([1, 2], [1, 2])",
    "a computed value": "x = f(4)\n        self.assertEqual(x, 2 * 2)",
    "nearly": "self.assertAlmostEqual(f(0.5), 0.5, places=3)",
    "a text": "self.assertEqual(f('a'), 'a')",
    "nothing": "self.assertEqual(f(None), None)",
    "true": "self.assertTrue(f(1) == 1)",
    "false": "self.assertFalse(f(1) == 2)",
    "membership": "self.assertIn(f(1), [1, 2])",
    "order": "self.assertGreater(f(2), 1)",
    "an instance": "self.assertIsInstance(f(1), int)",
    "not none": "self.assertIsNotNone(f(1))",
    "an error": "with self.assertRaises(KeyError):\n            raise KeyError(f(1))",
    "an error of a call": "self.assertRaises(ValueError, int, f('x'))",
    "a mock": "m = mock.Mock()\n        m(f(1))\n        m.assert_called_once_with(1)",
    "assert": "assert f(1) == 1",
    "within a block": "with self.subTest(n=1):\n            self.assertEqual(f(1), 1)",
    "a helper": "self.check(f(1))",
}
NOT_SURE = {
    "a condition": "if f(0):\n            self.assertEqual(f(1), 1)",
    "a loop": "for n in f([]):\n            self.assertEqual(n, 1)",
    "after the end": "return\n        self.assertEqual(f(1), 1)",
    "an error that is caught": "try:\n            self.assertEqual(f(1), 1)\n"
    "        except AssertionError:\n            pass",
    "no assertion": "f(1)",
}


def passed(code: str) -> bool:
    names = {"f": lambda value: value}
    exec(code, names)
    result = unittest.TestResult()
    unittest.TestLoader().loadTestsFromTestCase(names["T"]).run(result)  # type: ignore[arg-type]
    assert result.testsRun == 1
    return result.wasSuccessful()


def module(body: str) -> str:
    helper = "    def check(self, value):\n        self.assertEqual(value, 1)\n"
    return f"{HEAD}    def test_it(self):\n        {body}\n{helper}"


@pytest.mark.parametrize("name", SURE)
def test_a_right_program_passes_the_test_and_fails_its_control(name: str) -> None:
    code = module(SURE[name])
    wrong = control(code, Random(0))
    assert wrong is not None
    assert wrong.must_fail == {"T.test_it"} == names_of_tests(code)
    assert (passed(code), passed(wrong.code)) == (True, False)


@pytest.mark.parametrize("name", NOT_SURE)
def test_a_test_that_a_correct_program_may_pass_is_not_a_control(name: str) -> None:
    assert passed(module(NOT_SURE[name]))
    assert control(module(NOT_SURE[name]), Random(0)) is None


@pytest.mark.parametrize("code", ["", "def broken(", "x = 1", "\x00"])
def test_a_file_without_tests_has_no_control(code: str) -> None:
    assert control(code, Random(0)) is None
    assert names_of_tests(code) == frozenset()
