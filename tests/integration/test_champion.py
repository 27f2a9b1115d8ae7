"""Promotion and refusal on a real store: files, lineage, claims, `previous`, notices, pages."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import RunResource
from ops.alerts.notify import load_notices
from ops.config import PromotionGate, Setup, load_pool, load_recipe
from ops.core.workspace import Workspace
from ops.evaluation.comparison import Comparison
from ops.release import aliases, registry
from ops.release.artifacts import FILES_TAG
from ops.release.champion import open_registered_versions
from ops.release.judgement import apply_gate
from ops.release.lineage import REQUIRED_TAGS, ReleaseRefusedError
from ops.release.mlflow_store import MODEL_NAME, PREVIOUS, RegistryError, connect, store_exists
from ops.release.promotion import NO_CHAMPION, override_decision
from ops.results.leaderboard import Leaderboard
from ops.stages.release import promote_manually, roll_back
from pipelines.dagster_home import prepare_home
from pipelines.release import make_release_jobs
from tests.command import podium
from tests.releases import NO, POLICY, YES, checkout, model_folder, scored, shared_store, version

ROOT = Path(__file__).resolve().parents[2]
GATE = PromotionGate(
    max_loss_against_champion=1.0, min_gain_over_best_worker=-1.0, max_benchmark_loss=1.0, min_paired_share=0.9
)
ADA = ("Ada", "it answers in English again")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("PODIUM_ROOT", str(tmp_path / "project"))
    return checkout(tmp_path / "project", shared_store())


@pytest.fixture
def setup(workspace: Workspace) -> Setup:
    return Setup(workspace, load_recipe(ROOT / "config", "quickstart"), load_pool(ROOT / "config", "quickstart"))


def bearers(workspace: Workspace) -> dict[str, str]:
    """Return alias → version."""
    with connect(workspace) as client:
        known = client.search_model_versions(f"name = '{MODEL_NAME}'")
        return {
            alias: str(each.version)
            for each in (client.get_model_version(MODEL_NAME, found.version) for found in known)
            for alias in each.aliases
        }


def test_previous_is_the_replaced_champion_and_the_target_of_a_rollback(workspace: Workspace) -> None:
    first, second, third = (version(workspace, right) for right in (6, 7, 8))
    assert aliases.promote_version(workspace, first.version, YES)
    assert bearers(workspace) == {"champion": "1", "challenger": "3"}
    assert aliases.promote_version(workspace, second.version, YES)
    assert aliases.promote_version(workspace, third.version, YES)
    assert bearers(workspace) == {"champion": "3", "previous": "2", "challenger": "3"}
    assert aliases.roll_back_champion(workspace, "costly", "Ada").version == "2"
    assert bearers(workspace) == {"champion": "2", "previous": "1", "challenger": "3"}
    assert registry.get_version(workspace, "3").tags["rolled_back"] == "Ada: costly"
    assert aliases.roll_back_champion(workspace, "costly too").version == "1"
    assert bearers(workspace) == {"champion": "1", "challenger": "3"}
    with pytest.raises(RegistryError, match="a rollback is not possible"):
        aliases.roll_back_champion(workspace, "and this")
    assert not aliases.promote_version(workspace, "3", YES), "what was rolled back comes back by name only"
    assert aliases.promote_version(workspace, "3", override_decision(YES, *ADA))
    assert bearers(workspace) == {"champion": "3", "previous": "1", "challenger": "3"}


def test_an_operation_killed_between_two_steps_is_repeated_as_a_whole(workspace: Workspace) -> None:
    first, second = version(workspace), version(workspace)
    aliases.promote_version(workspace, first.version, YES)
    with connect(workspace) as client:  # killed before the champion moved
        client.set_model_version_tag(MODEL_NAME, second.version, "replaced", first.version)
        client.set_registered_model_alias(MODEL_NAME, PREVIOUS, first.version)
    with pytest.raises(RegistryError, match="a rollback is not possible"):
        aliases.roll_back_champion(workspace, "costly")
    assert aliases.promote_version(workspace, second.version, YES)
    assert bearers(workspace) == {"champion": "2", "previous": "1", "challenger": "2"}


@pytest.mark.parametrize("name", REQUIRED_TAGS)
def test_a_version_that_does_not_say_where_it_came_from_is_refused(workspace: Workspace, name: str) -> None:
    known = version(workspace, **{name: ""})
    for verdict in (YES, override_decision(NO, *ADA)):
        with pytest.raises(
            ReleaseRefusedError, match=rf"version 1: lineage: {name} is missing.*registered_model again"
        ):
            aliases.promote_version(workspace, known.version, verdict)
    assert registry.find_champion(workspace) is None


WEIGHTS = "artifacts/policy/model.safetensors"
DAMAGES: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "a flipped bit": (WEIGHTS, WEIGHTS, lambda file: file.write_bytes(b"\1" + file.read_bytes()[1:])),
    "a cut file": (WEIGHTS, WEIGHTS, lambda file: file.write_bytes(file.read_bytes()[:-1])),
    "a file gone": (WEIGHTS, WEIGHTS, Path.unlink),
    "a file more": (extra := "artifacts/policy/extra.safetensors", extra, Path.touch),
    "other prices": (prices := "artifacts/pool.yaml", prices, lambda file: file.write_text("workers: [1]\n")),
    "other code": ("agent.py", "code", lambda file: file.write_text("AGENT = 2\n")),
}
"""The file that is damaged, the one that the error must name, and the damage."""


@pytest.mark.parametrize("how", DAMAGES)
def test_files_that_are_not_what_was_registered_are_refused(
    workspace: Workspace, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, named, damage = DAMAGES[how]
    first, second, third = (version(workspace) for _ in range(3))
    for each in (first, second):
        aliases.promote_version(workspace, each.version, YES)
    damage(model_folder(workspace, third) / file)
    for verdict in (YES, override_decision(NO, *ADA)):
        with pytest.raises(ReleaseRefusedError, match="since version 3 was registered") as error:
            aliases.promote_version(workspace, third.version, verdict)
        assert str(model_folder(workspace, third) / named) in str(error.value)
    assert "podium rollback" in str(error.value)
    damage(model_folder(workspace, first) / file)
    with pytest.raises(ReleaseRefusedError, match="since version 1 was registered"):
        aliases.roll_back_champion(workspace, "costly")
    damage(model_folder(workspace, second) / file)
    with (
        pytest.raises(ReleaseRefusedError, match="since version 2 was registered"),
        open_registered_versions(workspace) as champion,
    ):
        champion.fetch_files("2")
    assert podium("ask", "What is 6 * 7?") == 1
    assert "since version 2 was registered" in capsys.readouterr().err
    assert bearers(workspace) == {"champion": "2", "previous": "1", "challenger": "3"}


@pytest.mark.parametrize("how", [*DAMAGES, "gone"])
def test_a_restore_of_the_artifacts_is_the_remedy_that_it_is_said_to_be(
    workspace: Workspace, how: str, tmp_path: Path
) -> None:
    known = version(workspace)
    assert podium("backup", str(tmp_path / "copy.tar")) == 0
    if how == "gone":
        shutil.rmtree(model_folder(workspace, known).parent)
    else:
        file, _, damage = DAMAGES[how]
        damage(model_folder(workspace, known) / file)
    with pytest.raises(ReleaseRefusedError) as error:
        aliases.promote_version(workspace, known.version, YES)
    said = str(error.value)
    if "Remove that file" in said:
        Path(said.partition(": ")[0]).unlink()
    else:
        [line] = re.findall(r"`podium (restore [^`]+)`", said)
        assert podium(*line.replace("FILE", str(tmp_path / "copy.tar")).split()) == 0
    assert aliases.promote_version(workspace, known.version, YES)


def test_a_version_without_the_hashes_of_its_files_is_refused(workspace: Workspace) -> None:
    known = version(workspace)
    with connect(workspace) as client:
        client.delete_model_version_tag(MODEL_NAME, known.version, FILES_TAG)
    with pytest.raises(ReleaseRefusedError, match=r"version 1: its tag 'files'.* is missing.*registered_model again"):
        aliases.promote_version(workspace, known.version, YES)


def test_missing_files_are_reported_with_a_remedy(workspace: Workspace) -> None:
    known = version(workspace)
    shutil.rmtree(model_folder(workspace, known).parent)
    with pytest.raises(ReleaseRefusedError, match=r"models:/conductor/1: its files cannot be read .*backup"):
        aliases.promote_version(workspace, known.version, YES)


def compared(right: int = 9) -> Comparison:
    return Comparison(
        POLICY, Leaderboard({}), scored(right), "algebraist", scored(2), scores_key="origin-1",
        questions={"mmlu": "m1", "gpqa_diamond": "g1"},
    )  # fmt: skip


@pytest.mark.parametrize(("claims", "said"), [
    ({"policy": "test-2"}, "policy: the version says test-2, and the current evaluation is of test-1"),
    ({"pool_answers_key": "another"}, "pool_answers_key: the version says another"),
    ({"evaluation": "origin-2"}, "evaluation: the version says origin-2, and the current evaluation is of origin-1"),
])  # fmt: skip
def test_an_evaluation_of_something_else_than_the_version_says_is_refused(
    setup: Setup, claims: dict[str, str], said: str
) -> None:
    known = version(setup.workspace, **{"pool_answers_key": setup.pool.answers_key, **claims})
    with pytest.raises(ReleaseRefusedError, match=said):
        apply_gate(setup, known, compared(), GATE)
    tags = registry.get_version(setup.workspace, known.version).tags
    assert not [tag for tag in tags if tag.startswith("analysis_against")], "a refused judgement is not an analysis"


def test_scores_that_are_not_those_of_the_version_are_refused(setup: Setup) -> None:
    known = version(setup.workspace, 8, **claimed(setup))
    with pytest.raises(ReleaseRefusedError, match=r"version 1: scores.parquet: has other scores .* \(4 rows differ\)"):
        apply_gate(setup, known, compared(9), GATE)
    assert apply_gate(setup, known, compared(8), GATE).decision.against == NO_CHAMPION


def claimed(setup: Setup, questions: str = "gpqa_diamond=g1 mmlu=m1") -> dict[str, str]:
    return {"pool_answers_key": setup.pool.answers_key, "evaluation": "origin-1", "questions": questions}


def test_questions_that_changed_since_the_champion_was_scored_are_not_paired(setup: Setup) -> None:
    workspace = setup.workspace
    champion = version(workspace, 9, **claimed(setup, "gpqa_diamond=g1 mmlu=older"))
    aliases.promote_version(workspace, champion.version, YES)
    judged = apply_gate(setup, version(workspace, 9, **claimed(setup)), compared(), GATE)
    assert judged.decision.failed[0].name == "questions shared with the champion"
    assert judged.dossier is not None
    against = judged.dossier.opponents[0]
    assert "other questions of mmlu" in against.note
    assert [pair.benchmark for pair in against.pairings] == ["mean of the benchmarks", "gpqa_diamond"]


@pytest.mark.parametrize("graders", ["gpqa_diamond=choice:1 mmlu=choice:0", "gpqa_diamond=choice:1"])
def test_scores_of_a_champion_that_another_grader_judged_are_not_paired_and_one_line_says_so(
    setup: Setup, graders: str, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = setup.workspace
    champion = version(workspace, 9, **claimed(setup), graders=graders, seed="3")
    aliases.promote_version(workspace, champion.version, YES)
    tested = replace(compared(), graders={"gpqa_diamond": "choice:1", "mmlu": "choice:1"})
    judged = apply_gate(setup, version(workspace, 9, **claimed(setup)), tested, GATE)
    assert judged.decision.failed[0].name == "questions shared with the champion"
    assert judged.dossier is not None
    against = judged.dossier.opponents[0]
    assert "Judged by another version of the graders of mmlu" in against.note
    assert [pair.benchmark for pair in against.pairings] == ["mean of the benchmarks", "gpqa_diamond"]
    [line] = [text for text in caplog.messages if text.startswith("Another version of the grader")]
    assert "judged champion version 1 on mmlu" in line and "`podium run test --seed 3`" in line


def test_a_verdict_is_worth_nothing_against_another_champion(setup: Setup) -> None:
    workspace = setup.workspace
    first, second = (version(workspace, right, **claimed(setup)) for right in (8, 9))
    judged = [apply_gate(setup, each, compared(right), GATE) for each, right in ((first, 8), (second, 9))]
    assert [each.decision.against for each in judged] == [NO_CHAMPION, NO_CHAMPION]
    assert aliases.promote_version(workspace, first.version, judged[0].decision, judged[0].dossier)
    with pytest.raises(
        aliases.ChampionChangedError, match="Version 1 became champion meanwhile; version 2 was judged against no"
    ):
        aliases.promote_version(workspace, second.version, judged[1].decision, judged[1].dossier)
    assert bearers(workspace)["champion"] == "1"
    assert "verdict" not in registry.get_version(workspace, "2").tags
    again = apply_gate(setup, registry.get_version(workspace, "2"), compared(9), GATE)
    assert again.decision.against == "1"


def test_a_manual_decision_sends_an_alert_with_the_next_command_and_the_page_has_name_and_reason(setup: Setup) -> None:
    workspace = setup.workspace
    for right in (8, 9):
        known = version(workspace, right, **claimed(setup))
        judged = apply_gate(setup, known, compared(right), GATE.model_copy(update={"min_format_compliance": 1.0}))
        aliases.promote_version(workspace, known.version, replace(judged.decision, promote=False), judged.dossier)
    assert registry.find_champion(workspace) is None
    promote_manually(workspace, "1", "Grace", "a first champion is needed")
    outcome = promote_manually(workspace, None, *ADA)
    assert (outcome.version, outcome.is_champion) == ("2", True)
    text = outcome.page.read_text(encoding="utf-8")
    for part in ("Promoted in spite of the gate by: Ada: it answers in English again", "test-1", "mmlu", "c0ffee",
                 "gain over the best single worker", "Best single worker, algebraist", "max_cost_ratio"):  # fmt: skip
        assert part in text, part
    assert "http" not in text.replace("http://www.w3.org", ""), "the page loads something"
    assert not promote_manually(workspace, "2", *ADA).has_changed, "no alert: it is the champion already"
    back = roll_back(workspace, "costly", "Ada")
    assert back.version == "1"
    assert "Rolled back: Ada: costly" in outcome.page.read_text(encoding="utf-8")
    stored = workspace.mlflow_artifacts / registry.get_version(workspace, "2").run_id / "artifacts" / "report"
    assert (stored / outcome.page.name).read_text(encoding="utf-8") == outcome.page.read_text(encoding="utf-8")
    assert [(entry.notice.title, entry.notice.command) for entry in load_notices(workspace, 9)] == [
        ("rolled back: version 1 is champion again", ""),
        ("version 2 is champion", ""),
        ("version 1 is champion", ""),
    ], "nobody has to do anything"
    assert "podium promote 2 --by NAME --reason WHY" in load_notices(workspace, 1)[0].notice.text


def test_an_override_leaves_the_gates_verdict_and_adds_the_decision(workspace: Workspace) -> None:
    first = version(workspace)
    aliases.promote_version(workspace, first.version, YES)
    second = version(workspace)
    assert not aliases.promote_version(workspace, second.version, NO)
    kept_back = registry.get_version(workspace, second.version).tags["verdict"]
    assert kept_back == "not promoted; failed checks: cost"
    outcome = promote_manually(workspace, None, *ADA)
    tags = registry.get_version(workspace, second.version).tags
    assert (outcome.verdict, tags["verdict"], tags["decision"]) == (kept_back, kept_back, "overridden")
    assert tags["override"] == ": ".join(ADA) and tags["overridden_at"].endswith("+00:00")
    decided = override_decision(replace(NO, against=first.version), *ADA)
    assert registry.load_decision(workspace, second.version) == decided, "the gate's decision, beside the person's"
    assert "decision" not in registry.get_version(workspace, first.version).tags
    third = version(workspace)
    page = promote_manually(workspace, None, *ADA).page
    assert registry.get_version(workspace, third.version).tags["verdict"] == "not judged"
    assert "before its comparisons were kept" in page.read_text(encoding="utf-8")


def test_the_commands(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert podium("promote", "--by", "Ada", "--reason", "first") == 1
    assert "There is no challenger" in capsys.readouterr().err
    for _ in range(2):
        version(workspace)
        assert podium("promote", "--by", "Ada", "--reason", "first") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Champion    models:/conductor@champion is version 1, promoted by Ada\n")
    assert "Verdict     of the gate: not judged" in shown and "Go back     podium rollback --reason WHY makes" in shown
    assert podium("promote", "2", "--by", "Ada", "--reason", "again") == 0
    assert "version 2 is the champion already" in capsys.readouterr().out
    assert podium("rollback", "--by", "Ada", "--reason", "costly") == 0
    shown = capsys.readouterr().out
    assert shown.splitlines() == [
        "Champion    models:/conductor@champion is version 1 again",
        "Undo        podium promote 2 --by NAME --reason WHY",
    ]
    assert podium("rollback", "--reason", "costly") == 1
    assert "a rollback is not possible" in capsys.readouterr().err
    assert podium("promote", "2", "--by", "Ada", "--reason", "cheaper from May") == 0, "by its name it comes back"
    assert registry.get_version(workspace, "2").tags["override"] == "Ada: cheaper from May"


@pytest.mark.parametrize(("arguments", "said"), [
    (("ask", "Why?"), "There is no champion yet. `podium run` trains and promotes one"),
    (("promote", "--by", "Ada", "--reason", "w"), "There is no challenger: `podium run` registers one"),
    (("promote", "1", "--by", "Ada", "--reason", "w"), "There is no version 1 of conductor: nothing is registered yet"),
    (("rollback", "--reason", "why"), "There is no champion to roll back. Promote a version first"),
])  # fmt: skip
def test_without_a_registry_a_command_says_what_to_do_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...],
    said: str,
) -> None:  # fmt: skip
    (tmp_path / "config").mkdir()
    (tmp_path / "dvc.yaml").touch()
    monkeypatch.setenv("PODIUM_ROOT", str(tmp_path))
    assert podium(*arguments) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.partition(": ")[0::2]) == ("", ("error", f"{said}\n"))
    assert not store_exists(Workspace(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("promote", "--by", " ", "--reason", "why"), "name: is empty"),
        (("promote", "--by", "Ada", "--reason", " "), "reason: is empty"),
        (("promote", " ", "--by", "Ada", "--reason", "why"), "version: is blank"),
        (("promote", "seven", "--by", "Ada", "--reason", "why"), "no version seven"),
        (("promote", "7", "--by", "Ada", "--reason", "why"), "no version 7"),
        (("promote", "-1", "--by", "Ada", "--reason", "why"), ""),
        (("rollback", "--reason", " "), "reason: is empty"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    for _ in range(2):
        version(workspace)
        promote_manually(workspace, None, *ADA)
    capsys.readouterr()
    assert podium(*arguments) in (1, 2)
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error
    assert error.startswith("error: ") == bool(said) and (not said or error.count("\n") == 1)
    assert bearers(workspace)["champion"] == "2"


def observed(instance: dg.DagsterInstance) -> list[tuple[str, str]]:
    """Return the observations of the asset `promotion`, oldest first: (decision, champion)."""
    records = instance.fetch_observations(dg.AssetKey("promotion"), limit=9).records
    seen = [record.asset_observation for record in reversed(records)]
    return [(str(each.metadata["decision"].value), str(each.metadata["champion"].value)) for each in seen if each]


@pytest.mark.long
def test_the_asset_promotion_shows_decisions_of_commands_and_jobs(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.root / "dagster.yaml").write_text("", encoding="utf-8")
    version(workspace)
    assert podium("promote", "--by", "Ada", "--reason", "first") == 0
    assert not workspace.dagster_home.exists(), "without an instance none is made"
    prepare_home(workspace)
    version(workspace)
    assert podium("promote", "--by", "Ada", "--reason", "first") == 0
    assert podium("rollback", "--by", "Ada", "--reason", "costly") == 0
    promote, rollback = make_release_jobs(RunResource(root=str(workspace.root)))
    with dg.DagsterInstance.get() as instance:
        for job, op, given in (
            (promote, "promote_version", {"version": "2"}), (rollback, "roll_back_champion", {}),
        ):  # fmt: skip
            config = {"ops": {op: {"config": {"by": "Ada", "reason": "needed", **given}}}}
            assert job.execute_in_process(config, instance=instance).success
        assert observed(instance) == [("overridden", "2"), ("rolled back", "1")] * 2


def test_the_jobs(workspace: Workspace) -> None:
    promote, rollback = make_release_jobs(RunResource(root=str(workspace.root)))
    with dg.DagsterInstance.ephemeral() as instance:

        def run(job: dg.JobDefinition, op: str, **config: str) -> dg.ExecuteInProcessResult:
            given = {"ops": {op: {"config": config}}}
            return job.execute_in_process(given, instance=instance, raise_on_error=False)

        first, second = version(workspace), version(workspace)
        decided = {"by": "Ada", "reason": "needed today"}
        assert run(promote, "promote_version", version="1", **decided).success
        assert run(promote, "promote_version", **decided).success
        assert bearers(workspace) == {"champion": "2", "previous": "1", "challenger": "2"}
        blank = run(rollback, "roll_back_champion", by=" ", reason="costly")
        [failure] = [event for event in blank.all_events if event.is_step_failure]
        said = failure.step_failure_data.user_failure_data
        assert said is not None
        assert said.description == "job rollback: config.by: is empty. State the person who decides and the reason"
        error = failure.step_failure_data.error
        assert error is not None and error.cause is None and "Error occurred while" not in error.message
        done = run(rollback, "roll_back_champion", by="Ada", reason="costly")
        assert done.success
        assert bearers(workspace)["champion"] == first.version
        assert registry.get_version(workspace, second.version).tags["rolled_back"] == "Ada: costly"
        with pytest.raises(dg.DagsterInvalidConfigError, match="reason"):
            rollback.execute_in_process({"ops": {"roll_back_champion": {"config": {"by": "Ada"}}}})


def test_a_dossier_is_kept_whole(setup: Setup) -> None:
    known = version(setup.workspace, 9, **claimed(setup))
    judged = apply_gate(setup, known, compared(), GATE)
    aliases.promote_version(setup.workspace, known.version, judged.decision, judged.dossier)
    assert registry.load_dossier(setup.workspace, known.version) == judged.dossier
    assert registry.load_decision(setup.workspace, known.version) == judged.decision
    assert judged.dossier is not None
    json.dumps(judged.dossier.as_dict(), allow_nan=False)
