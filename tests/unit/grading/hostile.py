"""Programs that try to be graded right without solving anything, by the kind of test that they attack.

Each has a name that says what it attacks; none computes the answers, so every one of them must score 0.
"""

# ruff: noqa: E501
# Programs as they stand: a line broken for width would only be harder to read.

from __future__ import annotations

from itertools import product

EQUAL = """
class Anything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __bool__(self): return True
    def __hash__(self): return 0
    def __len__(self): return 3
    def __iter__(self): return iter(())
    def __getitem__(self, key): return self
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __repr__(self): return '918273'
    def __instancecheck__(self, other): return True
"""
ANSWER = "def f(x): return None\n"
RIGHT = "def f(x): return {1: 918273, 2: 465564}[x]"

# ── what any program can try, whatever it is asked ────────────────────────────────
READ_REPORT = """
import gc, sys, os
def hexadecimal(value):
    return isinstance(value, str) and len(value) == 32 and not set(value) - set('0123456789abcdef')
def texts():
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if hexadecimal(value): yield value
            if type(value) is dict: yield from filter(hexadecimal, value.values())
        frame = frame.f_back
    for held in gc.get_objects():
        if type(held) is dict: yield from filter(hexadecimal, list(held.values()))
found = set(texts())
"""
"""Leaves in `found` what may be the nonce of the report."""

REPORTS = {
    "null": "null",
    "true": "true",
    "an empty list": "[]",
    "an empty object": "{}",
    "text": '"ok"',
    "a number": "1",
    "a list of nulls": "[null, null, null]",
    "ok without a value": '[["ok"], ["ok"], ["ok"]]',
    "an unknown status": '[["right", 1], ["right", 1], ["right", 1]]',
    "no status": "[[], [], []]",
    "an empty tag": '[["ok", {}], ["ok", {}], ["ok", {}]]',
    "an unknown tag": '[["ok", {"any": 1}], ["ok", {"any": 1}], ["ok", {"any": 1}]]',
    "an integer that is none": '[["ok", {"int": "zz"}], ["ok", {"int": "zz"}], ["ok", {"int": "zz"}]]',
    "a dict as a key": '[["ok", {"dict": [[{"dict": []}, 1]]}]]',
    "tests that ran": '[["ran", 3, 0, ""], ["ran", 3, 0, ""]]',
    "too many": '[["ok", 1], ["ok", 1], ["ok", 1], ["ok", 1], ["ok", 1], ["ok", 1]]',
    "nested deeply": "[" * 5000 + "]" * 5000,
    "a passed test": '[["ran", [["Asked.test_values", "ok", ""], ["Asked.test_more", "ok", ""], '
    '["Asked.test_errors", "ok", ""]], []], ["ran", [["Asked.test_values", "ok", ""], '
    '["Asked.test_more", "ok", ""], ["Asked.test_errors", "ok", ""]], []]]',
}


def forged(report: str, moment: str) -> str:
    """Write `report` behind every nonce that can be found to every descriptor, at once or at the end."""
    body = (
        f"{READ_REPORT}\nreport = {report!r}\ndef send():\n    for nonce in found or {{''}}:\n"
        "        for fd in range(1, 32):\n            try: os.write(fd, (nonce + report).encode())\n"
        "            except OSError: pass\n"
    )
    ends = {
        "and leaves": "send()\nos._exit(0)\n",
        "and goes on": "send()\n" + ANSWER,
        "at exit": "import atexit\natexit.register(send)\n" + ANSWER,
        "from a thread": "import threading\nthreading.Thread(target=send).start()\n" + ANSWER,
    }
    return body + ends[moment]


FORGERIES = {
    f"forges {name} {moment}": forged(report, moment)
    for (name, report), moment in product(REPORTS.items(), ("and leaves", "and goes on", "at exit", "from a thread"))
    if moment == "and leaves" or name in ("null", "a passed test")
}

SEARCH = """
import os, sys
def hunt(text, wanted=(b'918273', b'465564')):
    return any(part in text for part in wanted)
def parents():
    pid = os.getppid()
    for place in ('cmdline', 'environ', 'mem', 'maps', 'fd/0', 'fd/1', 'fd/3', 'fd/4', 'fd/5', 'root', 'cwd'):
        for who in (pid, 1, 'self', 'thread-self'):
            try:
                with open(f'/proc/{who}/{place}', 'rb') as file: yield file.read(1 << 20)
            except (OSError, ValueError): continue
leak = any(hunt(text) for text in parents())
"""
"""Looks for the expected values outside; `leak` says whether they were found."""

LEAVING = {
    "os._exit(0)": "import os\nos._exit(0)",
    "sys.exit(0)": "import sys\nsys.exit(0)",
    "SystemExit": "raise SystemExit",
    "SystemExit in the middle": "def f(x):\n    raise SystemExit(0)",
    "os._exit in the middle": "import os\ndef f(x):\n    os._exit(0)",
    "leaves by a signal": "import os\nos.kill(os.getpid(), 9)",
    "aborts": "import os\nos.abort()",
    "leaves in a finalizer": "import os\nclass A:\n    def __del__(self): os._exit(0)\ndef f(x): A()",
    "leaves at exit": "import atexit, os\natexit.register(os._exit, 0)\n" + ANSWER,
    "leaves in a thread": "import threading, os\nthreading.Thread(target=os._exit, args=(0,)).start()\n" + ANSWER,
    "forks and leaves": "import os\ntry:\n    if os.fork(): os._exit(0)\nexcept OSError: pass\n" + ANSWER,
    "replaces itself": "import os\nos.execv('/bin/true', ['true'])",
    "nothing": "",
    "a comment": "# f(1) == 918273",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "generator exit": "def f(x):\n    raise GeneratorExit",
}

PATCHES = {
    "builtins' equality of isinstance": "import builtins\nbuiltins.isinstance = lambda a, b: True\n",
    "builtins.len": "import builtins\nbuiltins.len = lambda a: 3\n",
    "builtins.repr and str": "import builtins\nbuiltins.repr = builtins.ascii = lambda a: '918273'\n",
    "builtins.eval": "import builtins\nbuiltins.eval = lambda *a: 918273\n",
    "builtins.compile": "import builtins\nreal = compile\nbuiltins.compile = lambda *a, **k: real('0', 'x', 'eval')\n",
    "builtins.exec": "import builtins\nbuiltins.exec = lambda *a, **k: None\n",
    "builtins.AssertionError": "import builtins\nbuiltins.AssertionError = KeyError\n",
    "builtins.Exception": "import builtins\nbuiltins.Exception = builtins.BaseException = OSError\n",
    "builtins.type": "import builtins\nbuiltins.type = lambda *a: int\n",
    "builtins.__build_class__": "import builtins\nbuiltins.__build_class__ = lambda *a, **k: object\n",
    "builtins.__import__": "import builtins\nreal = __import__\n"
    "def bring(name, *a, **k):\n    got = real(name, *a, **k)\n"
    "    if hasattr(got, 'TestCase'): got.TestCase.assertEqual = lambda *a, **k: None\n    return got\n"
    "builtins.__import__ = bring\n",
    "json and its encoder": "import json\njson.dumps = lambda *a, **k: 'null'\njson.encoder.encode_basestring = str\n",
    "os.write": "import os\nos.write = lambda fd, data: len(data)\n",
    "the harness's module": "import sys\nfor name, module in list(sys.modules.items()):\n"
    "    if 'harness' in name or name == '__main__':\n"
    "        for key in list(vars(module)):\n            if not key.startswith('__'): setattr(module, key, lambda *a, **k: 'null')\n",
    "the harness's frames": "import sys\nframe = sys._getframe()\nwhile frame:\n"
    "    for key, value in list(frame.f_globals.items()):\n"
    "        if callable(value) and not key.startswith('__') and key in ('encode', 'blame', 'run_calls', 'same', 'report'):\n"
    "            frame.f_globals[key] = lambda *a, **k: '918273'\n    frame = frame.f_back\n",
}
"""Changes to what a harness may rely on; each is followed by an `f` that solves nothing."""

# ── call ─────────────────────────────────────────────────────────────────────────
FRAMES = """
import sys, gc
def f(x):
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_locals, frame.f_globals):
            for value in list(scope.values()):
                if value in (918273, '918273', 465564, '465564'): return int(value)
        for const in frame.f_code.co_consts:
            if const in (918273, '918273', 465564, '465564'): return int(const)
        frame = frame.f_back
    for held in gc.get_objects():
        if isinstance(held, (list, tuple)) and ('918273' in map(repr, held[:50]) or 918273 in held[:50]): return 918273
"""
LIARS = {
    "equals everything": EQUAL + "def f(x): return Anything()",
    "a list that equals everything": "class A(list):\n    def __eq__(s, o): return True\n    __hash__ = None\ndef f(x): return A([1])",
    "an int that equals everything": "class A(int):\n    def __eq__(s, o): return True\n    def __hash__(s): return 1\n"
    "    def __repr__(s): return '918273'\n    __str__ = __format__ = __repr__\ndef f(x): return A(3)",
    "a str that equals everything": "class A(str):\n    def __eq__(s, o): return True\n    def __hash__(s): return 1\ndef f(x): return A('a')",
    "a float that equals everything": "class A(float):\n    def __eq__(s, o): return True\n    def __hash__(s): return 1\n"
    "    def __repr__(s): return '918273.0'\ndef f(x): return A(3)",
    "a dict that equals everything": "class A(dict):\n    def __eq__(s, o): return True\n    def items(s): return [(1, 2)]\ndef f(x): return A()",
    "a metaclass that equals everything": "class M(type):\n    def __eq__(s, o): return True\n    def __hash__(s): return 1\n"
    "    def __instancecheck__(s, o): return True\nclass A(metaclass=M): pass\ndef f(x): return A",
    "a class in another's clothes": "class A:\n    __class__ = int\n    def __eq__(s, o): return True\n    def __hash__(s): return 1\ndef f(x): return A()",
    "compares by reflection": "class A:\n    def __eq__(s, o): return NotImplemented if o is s else True\n    def __hash__(s): return 1\n"
    "    def __rsub__(s, o): return 0\n    __sub__ = __abs__ = __round__ = __rsub__\ndef f(x): return A()",
    "not a number": "def f(x): return float('nan')",
    "a numpy array in name only": "class ndarray:\n    def tolist(s): return s\n    def __eq__(s, o): return True\ndef f(x): return ndarray()",
    "a fraction in name only": "class Fraction:\n    def as_integer_ratio(s): return (1, 1)\n    def __float__(s): return 1.5\n"
    "    def __eq__(s, o): return True\ndef f(x): return Fraction()",
    "a mock": "from unittest import mock\ndef f(x): return mock.ANY",
    "a mock that agrees": "from unittest import mock\nm = mock.MagicMock()\nm.__eq__ = lambda s, o: True\ndef f(x): return m",
    "a very long integer": "def f(x): return 1 << 40000",
    "endless nesting": "a = []\na.append(a)\ndef f(x): return a",
}
SEARCHES = {
    "frames": FRAMES,
    "the parent": SEARCH + "def f(x): return 918273 if leak else 0",
    "garbage": "import gc\ndef f(x):\n    for held in gc.get_objects():\n        for inner in gc.get_referents(held):\n"
    "            if inner in (918273, '918273'): return 918273\n",
    "a trace function": "import sys\nseen = []\ndef trace(frame, event, arg):\n    seen.extend(frame.f_locals.values())\n    return trace\n"
    "sys.settrace(trace)\nsys.setprofile(trace)\ndef f(x):\n    return 918273 if 918273 in seen or '918273' in seen else 0",
    "its own memory": "def f(x):\n    for line in open('/proc/self/maps'):\n        place = line.split()\n"
    "        if 'rw' not in place[1] or 'heap' not in line: continue\n"
    "        start, end = (int(part, 16) for part in place[0].split('-'))\n"
    "        with open('/proc/self/mem', 'rb') as file:\n            file.seek(start)\n"
    "            if ('918' + '273').encode() in file.read(end - start).replace(b'918' + b'273', b'', 1): return 918273\n    return 0",
    "inherited descriptors": "import os\ndef f(x):\n    for fd in range(32):\n        try:\n            os.lseek(fd, 0, 0)\n"
    "            if b'465564' in os.read(fd, 1 << 20): return 918273 if x == 1 else 465564\n        except OSError: pass\n    return 0",
    "files around": "import os\ndef f(x):\n    for folder, _, names in os.walk('/tmp'):\n        for name in names[:50]:\n"
    "            try:\n                if '465564' in open(os.path.join(folder, name), errors='replace').read(): return 918273\n"
    "            except OSError: pass\n    return 0",
    "the environment and arguments": "import os, sys\ndef f(x):\n    text = repr(dict(os.environ)) + repr(sys.argv) + repr(sys.orig_argv)\n"
    "    return 918273 if '918273' in text else 0",
}

EXHAUSTING = {
    "sleeps for ever": "import time\ntime.sleep(10**6)",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "shell bomb": "import os\nos.system(':(){ :|:& };:')",
    "memory hog": "x = []\nwhile True: x.append('a' * 10**6)",
    "one huge list": "x = [0] * 10**11",
    "prints 100 MB": f"for _ in range(100): print('x' * 10**6)\n{RIGHT}",
    "reads stdin for ever": "import sys\nwhile True: sys.stdin.read()",
    "endless recursion": "def f(x): return f(x)",
    "signals everyone": "import os\nos.kill(-1, 9)",
    "opens a socket": f"import socket\nsocket.create_connection(('127.0.0.1', 9))\n{RIGHT}",
}
"""Each is to be stopped, two of them although they are right."""

CALL = {
    **{f"forges: {name}": text for name, text in FORGERIES.items()},
    **{f"leaves: {name}": text for name, text in LEAVING.items()},
    **{f"patches: {name}": text + ANSWER for name, text in PATCHES.items()},
    **{f"returns: {name}": text for name, text in LIARS.items()},
    **{f"searches: {name}": text for name, text in SEARCHES.items()},
    **{f"exhausts: {name}": text for name, text in EXHAUSTING.items()},
}

# ── stdin ────────────────────────────────────────────────────────────────────────
OUTPUTS = {
    "prints nothing": "pass",
    "prints null": "print('null')",
    "prints a report": 'print(\'[["ok", "918273"]]\')',
    "prints everything": "for n in range(10): print(918270 + n)",
    "prints its input": "print(input())",
    "prints escapes": "print('\\x1b[2K\\r918274')",
    "prints a null byte": "print('\\0')",
    "replaces stdout": "import sys\nclass A:\n    def write(s, t): return 1\n    def flush(s): pass\nsys.stdout = A()\nprint(918274)",
    "closes stdout": "import os\nos.close(1)",
    "truncates the others' output": "import os\nfor fd in range(1, 32):\n    try: os.ftruncate(fd, 0)\n    except OSError: pass",
    "an object that equals everything": EQUAL + "print(Anything())\nprint('x')",
    "searches the parent": SEARCH + "print(918273 if leak else 0)",
    "searches descriptors": "import os\nfor fd in range(32):\n    try:\n        os.lseek(fd, 0, 0)\n"
    "        if b'465564' in os.read(fd, 1 << 20): print(918273)\n    except OSError: pass",
    "searches memory": SEARCHES["garbage"] + "print(f(1))",
    "searches frames": FRAMES + "print(f(1))",
}
STDIN = {
    **{f"forges: {name}": text for name, text in FORGERIES.items()},
    **{f"leaves: {name}": text for name, text in LEAVING.items()},
    **{f"patches: {name}": text + "print(0)" for name, text in PATCHES.items()},
    **{f"prints: {name}": text for name, text in OUTPUTS.items()},
}

# ── unittest ─────────────────────────────────────────────────────────────────────
ASSERTS = ("assertEqual", "assertTrue", "assertIn", "assertRaises", "fail", "_baseAssertEqual")
EVERY_ASSERT = "import unittest\nfor name in dir(unittest.TestCase):\n    if name.startswith('assert'): "
CASE_PATCHES = {
    "assertEqual's code": "unittest.TestCase.assertEqual.__code__ = "
    "(lambda self, first, second, msg=None: None).__code__\n",
    "TestCase.run": "def run(self, result=None):\n    result.testsRun += 1\n    return result\n"
    "unittest.TestCase.run = run\n",
    "TestCase.__call__": "unittest.TestCase.__call__ = lambda self, result=None: setattr(result, 'testsRun', 3)\n",
    "TestCase._callTestMethod": "unittest.TestCase._callTestMethod = lambda self, method: None\n",
    "TestCase.setUp": "def setUp(self):\n    self._testMethodName = 'passing'\n"
    "    type(self).passing = lambda s: None\n"
    "    for name in ('test_values', 'test_more', 'test_errors'): setattr(self, name, lambda: None)\nunittest.TestCase.setUp = setUp\n",
    "TestCase.failureException": "unittest.TestCase.failureException = type('Quiet', (Exception,), {})\n",
    "addFailure and addError": "unittest.TestResult.addFailure = unittest.TestResult.addError = lambda *a: None\n",
    "addFailure in every result": "for kind in [unittest.TestResult] + unittest.TestResult.__subclasses__():\n"
    "    kind.addFailure = kind.addError = kind.addSubTest = lambda self, *a: kind.addSuccess(self, a[0])\n",
    "the failures list": "unittest.TestResult.failures = property(lambda s: [], lambda s, v: None)\n"
    "unittest.TestResult.errors = property(lambda s: [], lambda s, v: None)\n",
    "wasSuccessful": "unittest.TestResult.wasSuccessful = lambda s: True\n",
    "startTest": "real = unittest.TestResult.startTest\n"
    "def start(self, test):\n    real(self, test)\n    raise SystemExit(0)\nunittest.TestResult.startTest = start\n",
    "the suite's run": "def run(self, result, debug=False):\n    result.testsRun = 3\n    return result\n"
    "unittest.TestSuite.run = run\n",
    "the loader": "unittest.TestLoader.loadTestsFromModule = unittest.TestLoader.loadTestsFromTestCase = "
    "lambda self, *a, **k: unittest.TestSuite([unittest.FunctionTestCase(lambda: None)] * 3)\n",
    "the loader's names": "unittest.TestLoader.getTestCaseNames = lambda self, case: []\n",
    "the outcome": "class Outcome(unittest.case._Outcome):\n    def testPartExecutor(self, *a, **k):\n"
    "        import contextlib\n        return contextlib.suppress(BaseException)\nunittest.case._Outcome = Outcome\n",
    "the outcome's success": "unittest.case._Outcome.success = property(lambda s: True, lambda s, v: None)\n",
    "TestCase itself": "class Case(unittest.TestCase):\n    def run(self, result=None):\n"
    "        result.startTest(self)\n"
    "        result.addSuccess(self)\n        result.stopTest(self)\nunittest.TestCase = Case\n",
    "a base that is put in": "class Base:\n    def assertEqual(self, *a, **k): pass\n"
    "    assertIn = assertTrue = assertGreater = assertEqual\n"
    "real = __build_class__\nimport builtins\nbuiltins.__build_class__ = lambda f, n, *b, **k: real(f, n, *((Base,) + b), **k)\n",
    "the tests' methods": "def quiet(cls, **k):\n    for name in list(vars(cls)):\n"
    "        if name.startswith('test'): setattr(cls, name, lambda self: None)\n"
    "unittest.TestCase.__init_subclass__ = classmethod(quiet)\n",
    "the tests, deleted": "def quiet(cls, **k):\n    for name in list(vars(cls)):\n"
    "        if name.startswith('test') and name != 'test_errors': delattr(cls, name)\n"
    "unittest.TestCase.__init_subclass__ = classmethod(quiet)\n",
    "skips": "unittest.TestCase.setUp = lambda self: self.skipTest('later')\n",
    "expected failures": "def quiet(cls, **k):\n    for name in list(vars(cls)):\n"
    "        if name.startswith('test'): setattr(cls, name, unittest.expectedFailure(vars(cls)[name]))\n"
    "unittest.TestCase.__init_subclass__ = classmethod(quiet)\n",
    "the globals of unittest.case": "unittest.case._Outcome.testPartExecutor.__globals__['sys'] = None\n"
    "unittest.TestCase.assertEqual.__globals__['safe_repr'] = lambda *a: ''\nunittest.case.type = lambda *a: None\n",
    "defaults": "unittest.TestCase.assertEqual.__defaults__ = ('x',)\n"
    "unittest.TestCase._baseAssertEqual = lambda *a, **k: None\n",
}
"""Changes to the parts of unittest, which are imported before."""
UNITTEST_PATCHES = {
    "every assertion": EVERY_ASSERT
    + "setattr(unittest.TestCase, name, lambda *a, **k: unittest.mock.MagicMock())\nimport unittest.mock\n",
    "every assertion but a context": EVERY_ASSERT
    + "\n        if name != 'assertRaises': setattr(unittest.TestCase, name, lambda *a, **k: None)\n",
    "sys.modules": "import sys, types, unittest\nfake = types.ModuleType('unittest')\nfake.__dict__.update(vars(unittest))\n"
    "class Case(unittest.TestCase):\n    def assertEqual(self, *a, **k): pass\n    assertIn = assertTrue = assertEqual\n"
    "fake.TestCase = Case\nsys.modules['unittest'] = fake\n",
    "a reload": "import importlib, unittest, unittest.case\nimportlib.reload(unittest.case)\nimportlib.reload(unittest)\n"
    "unittest.TestCase.assertEqual = unittest.TestCase.assertIn = unittest.TestCase.assertTrue = lambda *a: None\n",
    "a finder": "import sys, types\nclass Finder:\n    def find_spec(self, name, path=None, target=None):\n        return None\n"
    "sys.meta_path.insert(0, Finder())\nfor name in [n for n in sys.modules if n.startswith('unittest')]: del sys.modules[name]\n",
    "a trace that leaves": "import sys\ndef trace(frame, event, arg):\n    if frame.f_code.co_name.startswith('assert'):\n"
    "        frame.f_trace_lines = True\n        frame.f_locals.clear()\n    return trace\nsys.settrace(trace)\n",
    "a trace that jumps": "import sys\njumped = []\ndef trace(frame, event, arg):\n    if frame.f_code.co_name.startswith('test_') and event == 'line' and not jumped:\n"
    "        jumped.append(1)\n        last = max(l for *_, l in frame.f_code.co_lines() if l)\n        try: frame.f_lineno = last\n        except ValueError: pass\n"
    "    return trace\nsys.settrace(trace)\n",
    "excepthook and audit": "import sys\nsys.excepthook = lambda *a: None\nsys.addaudithook(lambda *a: None)\n",
    "memory by ctypes": "import ctypes, unittest\nproxy = ctypes.py_object.from_address(id(unittest.TestCase.__dict__) + 16).value\n"
    "proxy['assertEqual'] = proxy['assertIn'] = lambda *a: None\n"
    "ctypes.pythonapi.PyType_Modified(ctypes.py_object(unittest.TestCase))\n",
    **{
        f"{name} by assignment": f"import unittest\nunittest.TestCase.{name} = lambda *a, **k: (lambda *a, **k: None)\n"
        for name in (*ASSERTS, "_getAssertEqualityFunc")
    },
    **{
        name: "import unittest, unittest.case, unittest.result, unittest.suite, unittest.loader, sys\n" + text
        for name, text in CASE_PATCHES.items()
    },
}
CALLER = """
import sys
def caller(): return sys._getframe(3)
def told(code, x):
    numbers = [const for const in code.co_consts if isinstance(const, int) and const > 700]
    return numbers[1 if x == 2 else 0]
"""
READERS = {
    "the caller's constants": "def f(x): return told(caller().f_code, x)",
    "a traceback's frame": "def f(x):\n    try: raise KeyError\n"
    "    except KeyError as error: return told(error.__traceback__.tb_frame.f_back.f_back.f_code, x)",
    "frames of inspect": "import inspect\ndef f(x): return told(inspect.stack()[2].frame.f_code, x)",
    "frames of a generator": "def walk():\n    yield sys._getframe(0).f_back.f_back.f_back\n"
    "def f(x): return told(next(walk()).f_code, x)",
    "frames of other threads": "import threading\ndef f(x):\n    found = []\n"
    "    me = threading.get_ident()\n    def look():\n        frame = sys._current_frames()[me]\n"
    "        while frame and not frame.f_code.co_name.startswith('test_'): frame = frame.f_back\n"
    "        found.append(told(frame.f_code, x))\n"
    "    thread = threading.Thread(target=look)\n    thread.start()\n    thread.join()\n    return found[0]",
    "the tests in memory": "import gc, types\ndef f(x):\n    wanted = 'test_more' if x == 3 else 'test_values'\n"
    "    for held in gc.get_objects():\n"
    "        if isinstance(held, types.FunctionType) and held.__name__ == wanted: return told(held.__code__, x)",
    "the tests in its module": "def f(x):\n    case = sys.modules['solution'].Asked\n"
    "    return told((case.test_more if x == 3 else case.test_values).__code__, x)",
}
SOLVES_NOTHING = "def f(x):\n    if x < 0: raise ValueError\n"
RAISES = "\ng = f\ndef f(x):\n    if x < 0: raise ValueError\n    return g(x)\n"
"""The tests ask for an error of a negative number: that much is easily done."""
UNITTEST = {
    **{f"forges: {name}": text for name, text in FORGERIES.items()},
    **{f"leaves: {name}": text for name, text in LEAVING.items()},
    **{f"patches: {name}": text + SOLVES_NOTHING for name, text in {**PATCHES, **UNITTEST_PATCHES}.items()},
    **{f"returns: {name}": text + RAISES for name, text in LIARS.items()},
    **{f"reads: {name}": CALLER + text + RAISES for name, text in READERS.items()},
    "patches when it is called": "import unittest\ndef f(x):\n    for name in dir(unittest.TestCase):\n"
    "        if name.startswith('assert') and name != 'assertRaises': setattr(unittest.TestCase, name, lambda *a, **k: None)\n"
    "    if x < 0: raise ValueError\n",
    "patches and mends": "import unittest\nreal = unittest.TestCase.assertEqual\ndef mend(self):\n    unittest.TestCase.assertEqual = real\n"
    "unittest.TestCase.tearDown = mend\ndef f(x):\n    unittest.TestCase.assertEqual = lambda *a, **k: None\n    if x < 0: raise ValueError\n    return 7\n",
    "turns the running test's class": "import sys\ndef f(x):\n    me = sys._getframe(1).f_locals.get('self')\n"
    "    if me is not None:\n        for name in ('assertEqual', 'assertIn', 'assertTrue'): setattr(me, name, lambda *a, **k: None)\n"
    "    if x < 0: raise ValueError\n    return 7\n",
    "raises what is passed over": "import unittest\ndef f(x):\n    raise unittest.SkipTest('not now')\n",
    "raises an expected failure": "from unittest.case import _ShouldStop\ndef f(x):\n    raise _ShouldStop\n",
}
