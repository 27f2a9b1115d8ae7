"""Bad configuration files: each command ends with one line that names the file, the field and the remedy."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shutil
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops import config
from ops.config.pool import Revisions
from ops.config.studies import load_studies
from ops.core.errors import ConfigError
from ops.core.settings_files import MAX_BYTES, MAX_DEPTH, parse_yaml, read_json, read_yaml
from ops.workflow.few_shots import load_few_shots
from tests.command import tried

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    file for pattern in ("config/*.yaml", "config/pools/*", "config/recipes/*", "data/*/*.yaml", "*.yaml")
    for file in ROOT.glob(pattern) if file.is_file()
)  # fmt: skip
POOL = "name: mine\nworkers:\n  - name: a\n    model: openai/gpt\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose configuration the test damages."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    for folder in ("few_shots", "cold_start"):
        shutil.copytree(ROOT / "data" / folder, tmp_path / "data" / folder)
    for file in ("dvc.yaml", "dagster.yaml"):
        shutil.copy(ROOT / file, tmp_path)
    monkeypatch.setenv("PODIUM_ROOT", str(tmp_path))
    return tmp_path


def refusal(*words: str) -> str:
    """What a command says that ends with status 1: one line."""
    done = tried(*words)
    assert done.exit_code == 1 and re.fullmatch(r"error: [^\n]+\n", done.stderr), done.stderr
    return done.stderr


def as_pyyaml_reads_it(value: Any) -> Any:
    """PyYAML's values with dates as text."""
    if isinstance(value, dict):
        return {name: as_pyyaml_reads_it(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_pyyaml_reads_it(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_files_of_the_project_mean_what_they_meant(file: Path) -> None:
    plain = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert repr(read_yaml(file)) == repr(as_pyyaml_reads_it(plain))


@pytest.mark.parametrize(("text", "value"), [
    ("a: 1", 1), ("a: -7", -7), ("a: 0", 0), ("a: 0x1F", 31), ("a: 1.5", 1.5), ("a: 1e-3", 0.001), ("a: .5", 0.5),
    ("a: true", True), ("a: False", False), ("a: null", None), ("a: ~", None), ("a:", None), ("a: ''", ""),
    ("a: '010'", "010"), ('a: "yes"', "yes"), ("a: 2026-01-01", "2026-01-01"), ("a: v1.2.3", "v1.2.3"),
    ("a: gpt_4", "gpt_4"), ("a: !!str 12", "12"), ("a: |\n  no\n", "no\n"), ("a: y", "y"), ("a: [1, b]", [1, "b"]),
])  # fmt: skip
def test_a_value_has_the_type_of_the_core_schema(text: str, value: object) -> None:
    read = parse_yaml(text, Path("file"))["a"]
    assert (read, type(read)) == (value, type(value))


def test_aliases_and_merged_mappings_are_read() -> None:
    text = "base: &b {x: 1, y: 2}\nown: {<<: *b, y: 3}\nlist: {<<: [{x: 9}, *b]}\nagain: *b"
    assert parse_yaml(text, Path("file")) == {
        "base": {"x": 1, "y": 2}, "own": {"x": 1, "y": 3}, "list": {"x": 9, "y": 2}, "again": {"x": 1, "y": 2},
    }  # fmt: skip


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(("text", "said"), [
    ("a: 1\nb: 2\na: 3", r"a \(lines 1 and 3\): is written twice\. Keep one"),
    ("x:\n  - price: {input: 1}\n    price: {input: 2}", r"x\.0\.price \(lines 2 and 3\): is written twice"),
    ("{a: 1, 'a': 2}", r"a \(lines 1 and 1\): is written twice"),
    ("a: 010", r"a \(line 1\): '010' is octal"), ("a: 089", r"a \(line 1\): '089' begins with 0"),
    ("a: 0o17", r"a \(line 1\): '0o17' is octal"), ("a: 0b11", r"a \(line 1\): '0b11' is octal or binary"),
    ("a: 1:30", r"a \(line 1\): '1:30' is a number to base 60"), ("a: 1_000", r"a \(line 1\): '1_000' is a number in"),
    ("a: yes", r"a \(line 1\): 'yes' is a truth value in YAML 1\.1"), ("a: Off", "'Off' is a truth value"),
    ("on: 1", "'on' is a truth value"), ("a: .inf", r"a \(line 1\): \.inf is not a finite number"),
    ("a: -.Inf", "is not a finite number"), ("a: .nan", "is not a finite number"),
    ("a: 1e999", "is not a finite number"),
    (f"a: {'9' * 5000}", r"a \(line 1\): is a number of 5,000 characters"), (f"a: {2**63}", "beyond what 64 bits"),
    ("1: a", "the key 1 is not text"), ("? [a]\n: b", "the key .* is not text"), ("~: a", "the key None is not text"),
    ("a: !!python/name:os.system x", "has the tag"), ("a: !!int yes", "has the tag"), ("a: !mine [1]", "has the tag"),
    ("a: &a [*a]", "too many values"), (BOMB, "too many values"), ("[" * 5000, "levels deep"),
    ("a: " + "{a: " * 2000, "levels deep"), ("a: [1", "is not valid YAML"), ("a: \x00", "is not valid YAML"),
    ("a: 1\n---\nb: 2", "is not valid YAML"), ("a: *b", "is not valid YAML"), ("a: {<<: 1}", "merges"),
])  # fmt: skip
def test_text_with_two_meanings_or_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        parse_yaml(text, Path("file"))
    assert "\n" not in str(caught.value)


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (lambda file: file.mkdir(), "is a folder"),
    "a pipe": (lambda file: os.mkfifo(file), "is a pipe"),
    "a loop of links": (lambda file: file.symlink_to(file.name), "cannot be read|is no pool|names no"),
    "a device": (lambda file: file.symlink_to("/dev/zero"), "is a device"),
    "not UTF-8": (lambda file: file.write_bytes(b"name: \xff\xfe"), "is not UTF-8"),
    "binary": (lambda file: file.write_bytes(bytes(range(32)) * 9), "is not valid YAML"),
    "80 MB of comments": (lambda file: file.write_text("# comment\n" * 8_000_000), "is larger than 1,000,000 bytes"),
    "a list": (lambda file: file.write_text("[1, 2]"), "is not a mapping"),
    "no text": (lambda file: file.write_text(""), "is not a mapping"),
}
if os.geteuid() != 0:
    NO_FILES["unreadable"] = (lambda file: (file.write_text("name: a"), file.chmod(0)), "cannot be read")
READERS: dict[str, Callable[[Path], object]] = {
    "config/recipes/mine.yaml": lambda root: config.load_recipe(root / "config", "mine"),
    "config/pools/mine.yaml": lambda root: config.load_pool(root / "config", "mine"),
    "config/promotion.yaml": lambda root: config.load_gate(root / "config"),
    "config/alerts.yaml": lambda root: config.load_alerts(root / "config"),
    "config/retraining.yaml": lambda root: config.load_retraining(root / "config"),
    "config/serving.yaml": lambda root: config.load_serving(root / "config"),
    "config/studies.yaml": lambda root: load_studies(root / "config"),
    "data/few_shots/mixed.yaml": lambda root: load_few_shots(root / "data", "mixed"),
}


@pytest.mark.parametrize(("file", "text", "said"), [
    ("alerts", "attempts: 1000000000\n", "attempts: should be less than or equal to 10"),
    ("alerts", "timeout_s: 1e9\n", "timeout_s: should be less than or equal to 60"),
    ("alerts", 'ui_url: "javascript:alert(1)"\n', "ui_url: is not the URL of an HTTP server"),
    ("alerts", 'ui_url: "https://me:secret@host"\n', "ui_url: holds a user or a password"),
    ("alerts", "ui_url: https://a b\n", "ui_url: is not the URL of an HTTP server"),
    ("retraining", "settle_s: 1e12\n", "settle_s: should be less than or equal to 86400"),
    ("serving", "attempts: 1000000000\n", "attempts: should be less than or equal to 10"),
    ("serving", "threads: 1000000000\n", "threads: should be less than or equal to 1024"),
    ("serving", "drain_s: 1e12\n", "drain_s: should be less than or equal to 86400"),
    ("pools/mine", f"{POOL}    retries: 1000000000\n", "workers.0.retries: should be less than or equal to 20"),
    ("pools/mine", f"{POOL}    timeout_s: 1e12\n", "workers.0.timeout_s: should be less than or equal to 86400"),
    ("pools/mine", f"{POOL}    api_base: file:///etc\n", "workers.0.api_base: is not the URL of an HTTP server"),
    ("recipes/mine", "grpo: {processes: 1000000000}\n", "grpo.processes: should be less than or equal to 4096"),
    ("recipes/mine", "grpo: {vllm_server_url: 'javascript:1'}\n", "vllm_server_url: is not the URL of an HTTP server"),
    ("recipes/mine", "evaluation: {writer: 'ftp://host'}\n", "evaluation.writer: 'ftp://host' is neither"),
])  # fmt: skip
def test_a_number_or_an_address_that_cannot_be_meant_is_refused(root: Path, file: str, text: str, said: str) -> None:
    head = "base: quickstart\nname: mine\n" if file == "recipes/mine" else ""
    (root / "config" / f"{file}.yaml").write_text(head + text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        READERS[f"config/{file}.yaml"](root)
    assert said in re.sub(r" \(line \d+\)", "", str(caught.value))
    assert "\n" not in str(caught.value)


def spoil(file: Path, what: str) -> None:
    file.unlink(missing_ok=True)
    NO_FILES[what][0](file)


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("place", READERS)
def test_a_path_that_is_not_a_text_file_is_refused(root: Path, place: str, what: str) -> None:
    spoil(root / place, what)
    with pytest.raises(ConfigError, match=NO_FILES[what][1]) as caught:
        READERS[place](root)
    assert str(root / place) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", [
    "config/recipes/quickstart.yaml", "config/pools/quickstart.yaml", "config/promotion.yaml", "config/alerts.yaml",
    "config/retraining.yaml", "config/revisions.yaml", "data/few_shots/in_distribution.yaml",
])  # fmt: skip
def test_a_run_reads_each_file_before_anything_is_spent(root: Path, place: str) -> None:
    spoil(file := root / place, "a pipe")
    assert re.fullmatch(rf"error: {re.escape(str(file))}: is a pipe[^\n]+\n", refusal("run"))
    assert not (root / ".podium" / "ledger.sqlite").exists()


@pytest.mark.parametrize("what", ["a folder", "a pipe", "a loop of links", "not UTF-8", "a list"])
def test_a_table_of_revisions_that_is_no_file_is_refused(root: Path, what: str) -> None:
    spoil(root / "config" / "revisions.yaml", what)
    with pytest.raises(ConfigError, match=r"revisions\.yaml"):
        config.load_pool(root / "config", "quickstart")
    (root / "config" / "revisions.yaml").rename(root / "other")
    assert Revisions.read(root / "config").models == {}


@pytest.mark.parametrize(("text", "said"), [
    ('{"a": 1, "a": 2}', "a: is written twice"), ('{"a": NaN}', "NaN is not a finite number"), ("[" * 99_999, "nested"),
    ('{"a": ' + "9" * 5000 + "}", "is not JSON"), ("{", "is not JSON"), ("[1]", "is not a JSON object"),
])  # fmt: skip
def test_a_deepspeed_file_that_is_wrong_is_refused(root: Path, text: str, said: str) -> None:
    (root / "config" / "deepspeed" / "mine.json").write_text(text, encoding="utf-8")
    recipe = config.load_recipe(root / "config", "paper")
    recipe = recipe.model_copy(update={"grpo": recipe.grpo.model_copy(update={"deepspeed": "mine.json"})})
    with pytest.raises(ConfigError, match=said) as caught:
        config.load_deepspeed(root / "config", recipe)
    assert "mine.json" in str(caught.value)


def write(root: Path, text: str) -> None:
    (root / "config" / "recipes" / "mine.yaml").write_text(f"base: quickstart\n{text}\n", encoding="utf-8")


def test_a_wrong_section_is_named_and_not_quoted_in_full(root: Path) -> None:
    write(root, "name: x\npolicy: {hidden: 63, heads: 4}\n# end")
    said = refusal("plan", "mine")
    assert said.endswith("Correct it (fields and limits: docs/reference/configuration.md)\n")
    assert "{" not in said and "Found" not in said


@pytest.mark.parametrize(("text", "field"), [
    ("name: ../../evil", "name"), ("name: a/b", "name"), ("name: ''", "name"), ("name: .hidden", "name"),
    (f"name: {'n' * 256}", "name"),
    ("name: 7", "name"),
    ("name: 'a\\nb'", "name"),
    ("trained_as: ../evil", "trained_as"),
    ("name: x\npool: ../../etc", "pool"), ("name: x\npool: quickstart:../a", "pool"),
    ("name: x\nevaluation: {pool: ../a}", "evaluation.pool"),
    ("name: x\ngrpo: {deepspeed: ../a.json}", "grpo.deepspeed"),
    ("name: x\nseed: -1", "seed"), ("name: x\nseed: true", "seed"), ("name: x\nseed: 2147483648", "seed"),
    ("name: x\nseed: '3'", "seed"), ("name: x\npolicy: {hidden: 63}", "policy.scratch"),
    ("name: x\npolicy: {hidden: 60, heads: 4}", "policy.scratch"),
    ("name: x\npolicy: {heads: 0}", "policy.scratch.heads"),
    ("name: x\npolicy: {max_tokens: 64}\ngrpo: {max_completion_tokens: 64}", "policy.max_tokens"),
    ("name: x\ngrpo: {adam_beta1: 1.0}", "grpo.adam_beta1"),
    ("name: x\ngrpo: {adam_beta2: -0.1}", "grpo.adam_beta2"), ("name: x\ngrpo: {steps: 1.5}", "grpo.steps"),
    ("name: x\ngrpo: {vllm: 1}", "grpo.vllm"), ("name: x\ngrpo: {staleness: false}", "grpo.staleness"),
    ("name: x\nbudget: {run_usd: true}", "budget.run_usd"), ("name: x\nbudget: {run_usd: '5'}", "budget.run_usd"),
    ("name: x\nbudget: {run_usd: .inf}", "budget.run_usd (line 3)"),
    ("name: x\nguards: {min_gain: 7}", "guards.min_gain"),
    ("name: x\nbudget: {run_usd: 1}\nbudget: {run_usd: 9}", "budget (lines 3 and 4)"),
    ("name: x\nadaptive: {smallest: 99}", "adaptive"), ("name: x\nbase: ../quickstart", "base (lines 1 and 3)"),
])  # fmt: skip
def test_a_recipe_that_is_impossible_is_refused_when_it_is_read(root: Path, text: str, field: str) -> None:
    write(root, text)
    assert f": {field}" in refusal("plan", "mine")
    assert not (root / ".podium").exists(), "nothing was begun"


@pytest.mark.parametrize("name", ["../recipes/quickstart", "/etc/passwd", "n" * 300, "", "a\nb", "quickstart.yaml/.."])
@pytest.mark.parametrize("words", [("plan",), ("pools", "show"), ("run",), ("data", "raw")])
@pytest.mark.usefixtures("root")
def test_an_argument_that_is_no_name_is_refused(words: tuple[str, ...], name: str) -> None:
    said = refusal(*words, name)
    assert re.search(r".is not the name of a file there\. (The (pools|recipes) are: |Did you mean ).", said)


@pytest.mark.parametrize("seed", ["-1", "2147483648", "1.5", "9" * 5000])
@pytest.mark.usefixtures("root")
def test_a_seed_that_is_none_is_refused(seed: str) -> None:
    done = tried("run", "--seed", seed)
    assert done.exit_code == 2 and "Traceback" not in done.stderr


@pytest.mark.parametrize(("text", "field"), [
    (POOL + "    price: {input: 1, output: 1}\n    price: {input: 0, output: 0}\n", "workers.0.price (lines 5 and 6)"),
    (POOL + "    max_tokens: true\n", "workers.0.max_tokens"),
    (POOL + "    price: {input: .nan, output: 1}\n", "line 5"),
    (POOL.replace("name: a", "name: ../a"), "workers.0.name"),
    (POOL.replace("name: a", f"name: {'a' * 300}"), "workers.0"),
    (POOL.replace("mine", "../mine"), "name"),
    (POOL + "    extra_body: {thinking: off}\n", "extra_body.thinking (line 5)"),
    (POOL + "variants: {../x: {a: {max_tokens: 5}}}\n", "variants"),
    (POOL + "variants: {x: {a: {max_tokens: true}}}\n", "variants.x.a.max_tokens"),
    (POOL + "    retired: soon\n", "workers.0.retired"),
])  # fmt: skip
def test_a_pool_that_is_impossible_is_refused(root: Path, text: str, field: str) -> None:
    (root / "config" / "pools" / "mine.yaml").write_text(text, encoding="utf-8")
    assert field in refusal("pools", "show", "mine")


def models() -> Iterator[type[config.Settings]]:
    """Every model that a person's file is read into."""
    for module in pkgutil.iter_modules(config.__path__, "ops.config."):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and issubclass(each, config.Settings) and each.__module__ == module.name:
                yield each


def unbounded(kind: Any) -> Iterator[Any]:
    """Return the numbers of an annotation without a stated bound."""
    if typing.get_origin(kind) is typing.Annotated:
        inner, *notes = typing.get_args(kind)
        if not re.search(r"\bg[et]=|Ge\(|Gt\(", repr(notes)):
            yield from unbounded(inner)
    elif kind in (int, float):
        yield kind
    elif typing.get_origin(kind) is not typing.Literal:
        for each in typing.get_args(kind):
            yield from unbounded(each)


@pytest.mark.parametrize("model", sorted(models(), key=lambda model: model.__name__), ids=lambda model: model.__name__)
def test_every_number_has_a_bound(model: type[config.Settings]) -> None:
    for name, field in model.model_fields.items():
        if not re.search(r"Ge\(|Gt\(", repr(field.metadata)):
            assert not list(unbounded(field.annotation)), f"{model.__name__}.{name} takes any number"


def test_input_at_the_size_limits_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    line = "# comment\n"
    file.write_text(line * ((MAX_BYTES - 5) // len(line)) + "a: 1\n", encoding="utf-8")
    assert read_yaml(file) == {"a": 1}
    assert parse_yaml("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1), file)
    (tmp_path / "file.json").write_text('{"a": [1, 2.5, null]}', encoding="utf-8")
    assert read_json(tmp_path / "file.json") == {"a": [1, 2.5, None]}
