"""What an error says about a misspelt name: the line in the file, the name that was meant, and where to read on."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from ops.config import Alerts, PromotionGate, Recipe, Retraining, Serving, load_alerts, load_pool, load_recipe
from ops.config.base import Settings
from ops.config.loading import REFERENCE, REFERENCE_SECTIONS
from ops.config.pool import PoolFile
from ops.config.studies import Studies, load_studies
from ops.core.errors import ConfigError
from ops.core.installation import resources_folder
from tests.command import tried

ROOT = Path(__file__).parents[2]
CHANNEL = "channels:\n  ops:\n    url: json://localhost\n    kinds: [failure, promotoin]\n"
Load = Callable[[Path], object]
EDITS: tuple[tuple[str, str, str, Load, str], ...] = (
    ("recipes/quickstart.yaml", "learning_rate:", "learning_rat:", lambda config: load_recipe(config, "quickstart"),
     "cold_start.learning_rat (line {}): is not a known key. Did you mean learning_rate? (see {}#coldstart)"),
    ("recipes/quickstart.yaml", "\ngrpo:", "\ngrppo:", lambda config: load_recipe(config, "quickstart"),
     "grppo (line {}): is not a known key. Did you mean grpo? (see {}#configrecipesnameyaml)"),
    ("recipes/quickstart.yaml", "  vocabulary:", "  vocabulry:", lambda config: load_recipe(config, "quickstart"),
     "policy.scratch.vocabulry (line {}): is not a known key. Did you mean vocabulary? (see {}#scratchpolicy)"),
    ("recipes/quickstart.yaml", "kind: scratch", "kind: scratsh", lambda config: load_recipe(config, "quickstart"),
     "policy.kind (line {}): should be one of 'scratch', 'pretrained', 'prompted', 'static'. Did you mean scratch?"),
    ("recipes/quickstart.yaml", "math500:", "math50:", lambda config: load_recipe(config, "quickstart"),
     "unknown benchmark math50. Did you mean math500?"),
    ("pools/quickstart.yaml", "workers:", "wrokers:", lambda config: load_pool(config, "quickstart"),
     "wrokers (line {}): is not a known key. Did you mean workers? (see {}#configpoolsnameyaml)"),
    ("pools/quickstart.yaml", "price:", "prise:", lambda config: load_pool(config, "quickstart"),
     "workers.0.prise (line {}): is not a known key. Did you mean price? (see {}#worker)"),
    ("studies.yaml", "kind: changes", "kind: changez", load_studies, "kind (line {}): should be one of 'changes', "),
    ("alerts.yaml", CHANNEL, CHANNEL, load_alerts, "'drift', 'decision' or 'promotion'. Did you mean promotion?"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "right", "wrong", "load", "said"), EDITS, ids=[each[4][:30] for each in EDITS])
def test_a_misspelt_setting_is_named_with_its_line_what_was_meant_and_the_page(
    tmp_path: Path, name: str, right: str, wrong: str, load: Load, said: str
) -> None:
    shutil.copytree(resources_folder() / "config", tmp_path / "config")
    file = tmp_path / "config" / name
    text = CHANNEL if right == CHANNEL else file.read_text("utf-8")
    file.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    line = text[: text.index(right) + right.startswith("\n")].count("\n") + 1
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "config")
    assert said.replace("{}", str(line), 1).replace("{}", REFERENCE) in str(refused.value)
    assert str(refused.value).startswith(f"{file}: ") and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan quickstrat", "quickstrat.yaml: does not exist. Did you mean quickstart? `podium recipes list` lists"),
        ("pools show opnai", "opnai.yaml: does not exist. Did you mean openai? `podium pools list` lists all pools"),
        ("pools show paper:unconstraind", "variants.unconstraind: does not exist. Did you mean unconstrained?"),
        ("pools show nothing-like-it", "does not exist. The pools are: anthropic, deepinfra, "),
        ("study one_workr", "there is no study 'one_workr'. Did you mean one_worker? `podium study` lists all"),
    ],
)
def test_a_misspelt_argument_is_answered_with_what_was_meant(words: str, said: str) -> None:
    done = tried(*words.split())
    assert done.exit_code == 1 and said in done.stderr
    assert done.stderr.count("\n") == 1, "one line when it is not shown on a terminal"


def models_below(model: type[Settings], found: set[type[Settings]]) -> set[type[Settings]]:
    """Add the model and all models of its fields to `found`."""

    def walk(annotation: object) -> None:
        if isinstance(annotation, type) and issubclass(annotation, Settings) and annotation not in found:
            models_below(annotation, found)
        for inner in get_args(annotation):
            walk(inner)

    found.add(model)
    for field in model.model_fields.values():
        walk(field.annotation)
    return found


def test_each_section_that_an_error_refers_to_is_on_the_page() -> None:
    headings = re.findall(r"^##+ (.*)$", (ROOT / REFERENCE).read_text("utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w-]", "", heading.lower()) for heading in headings}
    roots: tuple[type[Settings], ...] = (Recipe, PoolFile, PromotionGate, Serving, Retraining, Alerts, Studies)
    assert {root.__name__ for root in roots} == set(REFERENCE_SECTIONS)
    for root in roots:
        for model in models_below(root, set()):
            assert REFERENCE_SECTIONS.get(model.__name__, model.__name__.lower()) in anchors, model
