"""Notices through Apprise over real HTTP and SMTP on loopback: delivered, retried, given up; URLs that are refused; no
secret in any output; no failure of an alert ends a run; and the table of alerts, each of which the code sends."""

from __future__ import annotations

import datetime
import json
import logging
import re
import shlex
import socket
import ssl
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from ops.alerts import Notice, channels, notify
from ops.alerts.catalogue import CATALOGUE, RUN_FAILED, Alert
from ops.alerts.notify import load_notices
from ops.config import ALERT_KINDS, Alerts, load_alerts
from ops.core.errors import ConfigError
from ops.core.processes import free_port
from ops.core.workspace import Workspace
from pipelines.commands import main
from tests.command import podium

SECRET = "T0000/B0000/verysecretpath"
PASSWORD = "correct horse battery"
NOTICE = Notice("failure", "lifecycle failed", "run 1 <of> 2 & more", "http://127.0.0.1:3000/runs/1")


class Hook:
    """An HTTP server that gives the prepared replies, then 200, and records its requests."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.taken: list[dict[str, Any]] = []
        self.paths: list[str] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                hook.paths.append(self.path)
                status = hook.answers.pop(0) if hook.answers else 200
                if status == 0:  # closes the connection without a reply
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if status == 200:
                    hook.taken.append(body)
                self.send_response(status)
                if status == 302:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.server.server_address[1]}/services/{SECRET}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "config").mkdir()
    (tmp_path / "dvc.yaml").touch()
    return Workspace(tmp_path)


def configure(workspace: Workspace, **settings: object) -> None:
    (workspace.config / "alerts.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def channel(url: str, name: str = "team", **settings: object) -> dict[str, object]:
    return {name: {"url": url, **settings}}


WEBHOOK = channel("${MY_HOOK}")


@pytest.fixture
def hook(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """The webhook that the configuration names."""
    running = Hook()
    monkeypatch.setenv("MY_HOOK", running.url)
    configure(workspace, channels=WEBHOOK)
    yield running
    running.server.shutdown()
    running.server.server_close()


class Mailbox:
    """The messages that a mail server accepted; `refusals` are its next replies to a whole message."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.refusals: list[str] = []
        self.port = free_port()

    async def handle_DATA(self, server: object, session: object, envelope: Envelope) -> str:  # noqa: N802
        if self.refusals:
            return self.refusals.pop(0)
        self.messages.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 taken"


def certificate(folder: Path) -> ssl.SSLContext:
    """A server's context whose certificate only a client that was given `folder/cert.pem` trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(*private))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.fixture
def mailbox(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """The server that the configuration names, which wants STARTTLS and a password."""
    box = Mailbox()

    def known(*given: Any) -> AuthResult:
        return AuthResult(success=given[-1] == LoginPassword(b"podium", PASSWORD.encode()), handled=False)

    server = Controller(
        box, hostname="127.0.0.1", port=box.port, tls_context=certificate(tmp_path), require_starttls=True,
        auth_required=True, authenticator=known,
    )  # fmt: skip
    server.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    configure(workspace, channels=channel(mail(box.port), "mail"))
    yield box
    server.stop()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between attempts, because the test counts attempts."""
    monkeypatch.setattr(channels, "RETRY_PAUSE_S", 0.0)


def mail(port: int, user: str = "podium", service: str = "mailtos", password: str = "${MAIL_PASSWORD}") -> str:
    to = "a@example.org,b@example.org"
    return f"{service}://{user}:{password}@localhost:{port}?from=podium@example.org&to={to}"


def problems(workspace: Workspace, notice: Notice = NOTICE) -> list[str]:
    """Return the problems that `notify` reported, which are also in the record."""
    shown = [delivery.problem for delivery in notify(workspace, notice) if not delivery.is_accepted]
    assert list(load_notices(workspace, 1)[0].problems) == shown
    return shown


def test_a_webhook_gets_the_notice_and_the_record_keeps_it(workspace: Workspace, hook: Hook) -> None:
    assert problems(workspace) == []
    [body] = hook.taken
    assert (body["title"], body["message"], body["type"]) == (NOTICE.heading, NOTICE.body, "failure")
    assert load_notices(workspace, 5)[0].notice == NOTICE


def test_a_notice_of_one_occasion_is_sent_once(workspace: Workspace, hook: Hook) -> None:
    for _ in range(2):
        notify(workspace, Notice("drift", "the worker drifted", occasion="worker 3, night 12"))
    assert len(hook.taken) == len(load_notices(workspace, 9)) == 1


@pytest.mark.parametrize(("answer", "said"), [
    (500, "error=500"), (404, "error=404"), (302, "error=302"), (429, "error=429"), (0, "Connection error"),
])  # fmt: skip
def test_a_webhook_that_fails_is_tried_again_and_then_a_warning(
    workspace: Workspace, hook: Hook, answer: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook.answers = [answer, answer]
    assert problems(workspace) == []
    assert (len(hook.taken), len(hook.paths)) == (1, 3)
    hook.answers = [answer] * 5
    [problem] = problems(workspace)
    assert problem.startswith("team: ") and said in problem and "MY_HOOK" in problem and "\n" not in problem
    assert len(hook.paths) == 6
    assert any(record.levelno == logging.WARNING and said in record.getMessage() for record in caplog.records)


def test_a_webhook_that_does_not_answer_in_time_is_given_up_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as silent:  # accepts connections and never replies
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        monkeypatch.setenv("MY_HOOK", f"json://127.0.0.1:{silent.getsockname()[1]}/{SECRET}")
        configure(workspace, channels=WEBHOOK, timeout_s=0.2, attempts=2)
        [problem] = problems(workspace)
    assert "Read timed out" in problem and SECRET not in problem


@pytest.mark.parametrize("value", [
    None, "not a url", f"hooks.slack.com/{SECRET}", f"http://[::1/{SECRET}", f"nosuch://host/{SECRET}",
    f"slack://{SECRET}", f"json://127.0.0.1:1/{SECRET}", f"json://podium:{SECRET.replace('/', '')}@127.0.0.1:1/",
])  # fmt: skip
def test_no_message_and_no_log_repeats_a_webhook(
    workspace: Workspace, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str], value: str | None,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)  # with all libraries at the highest log level
    hook.answers = [500, 404, 500]
    said = problems(workspace)
    assert len(said) == 1
    if value is None:
        monkeypatch.delenv("MY_HOOK")
    else:
        monkeypatch.setenv("MY_HOOK", value)
    said += problems(workspace)
    assert len(said) == 2
    written = "".join(said) + caplog.text + "".join(capfd.readouterr())
    assert "MY_HOOK" in said[1]
    record = (workspace.state / "alerts.jsonl").read_text()
    for part in (*SECRET.split("/"), SECRET.replace("/", "")):
        assert part not in written and part not in record


def test_a_mail_over_tls_with_a_password(workspace: Workspace, mailbox: Mailbox) -> None:
    title = "a title\nBcc: everybody@example.org"
    assert problems(workspace, Notice("drift", title, "ünïcode ✓ <b> & co")) == []
    assert [message["to"] for message in mailbox.messages] == ["a@example.org", "b@example.org"]
    for message in mailbox.messages:
        assert message["subject"] == "[podium] drift: a title Bcc: everybody@example.org"
        assert message["from"].addresses[0].addr_spec == "podium@example.org" and message["bcc"] is None
        assert "ünïcode ✓" in message.get_body().get_content()


def test_a_mail_server_that_is_busy_is_asked_again(workspace: Workspace, mailbox: Mailbox) -> None:
    mailbox.refusals = ["451 later"]
    assert problems(workspace) == []
    assert {message["to"] for message in mailbox.messages} == {"a@example.org", "b@example.org"}
    mailbox.refusals = ["554 never"] * 6
    [problem] = problems(workspace)
    assert "mail: " in problem and "554" in problem


def test_a_mail_server_that_refuses_us(
    workspace: Workspace, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    configure(workspace, channels=channel(mail(mailbox.port, user="nobody"), "mail"))
    said = problems(workspace)
    assert "535" in said[0]
    configure(workspace, channels=channel(mail(free_port()), "mail"))
    said += problems(workspace)
    assert "Connection refused" in said[1]
    configure(workspace, channels=channel(mail(mailbox.port), "mail"))
    monkeypatch.delenv("SSL_CERT_FILE")
    said += problems(workspace)
    assert "certificate verify failed" in said[2], "sent to an unknown server"
    monkeypatch.delenv("MAIL_PASSWORD")
    said += problems(workspace)
    assert "MAIL_PASSWORD is not set" in said[3]
    assert mailbox.messages == []
    assert PASSWORD not in "".join(said) + caplog.text + "".join(capfd.readouterr())


def test_each_channel_gets_its_kinds(workspace: Workspace, hook: Hook, mailbox: Mailbox) -> None:
    both = channel("${MY_HOOK}", kinds=["promotion"]) | channel(mail(mailbox.port), "mail", kinds=["budget"])
    configure(workspace, channels=both)
    for kind in ("failure", "budget", "drift", "promotion"):
        assert problems(workspace, Notice(kind, kind)) == []  # type: ignore[arg-type]
    assert [body["title"] for body in hook.taken] == ["[podium] promotion: promotion"]
    assert {message["subject"] for message in mailbox.messages} == {"[podium] budget: budget"}
    assert [entry.notice.kind for entry in load_notices(workspace, 9)] == ["promotion", "drift", "budget", "failure"]


def test_a_mistake_in_the_file_ends_no_run(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    configure(workspace, chanels={})
    [problem] = problems(workspace)
    assert "alerts.yaml: chanels (line 1): is not a known key. Did you mean channels?" in problem
    assert "chanels" in caplog.text


def test_a_record_that_cannot_be_written_ends_no_run(workspace: Workspace, hook: Hook) -> None:
    workspace.state.write_text("a file where a folder should be")
    [team, record] = notify(workspace, NOTICE)
    assert team.is_accepted and record.channel == "record"
    assert "alerts.jsonl" in record.problem or ".podium" in record.problem


TOKEN = "TIiajkdnlazkcOXrIdevi7FQ"
WORD = "hunter2hunter2"


@pytest.mark.parametrize(("url", "said"), [
    (f"https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/{TOKEN}", "holds a secret"),
    (f"slack://T1JJ3T3L2/A1BRTD4JD/{TOKEN}", "holds a secret"),
    ("slack://T1JJ3T3L2/${A}/${B}", "holds a secret"),
    (f"discord://174216298/{TOKEN}", "holds a secret"),
    (f"pagerduty://{TOKEN}@{WORD}", "holds a secret"),
    (mail(25, password=WORD), "holds a secret"),
    (mail(25, password=WORD + "${MAIL_PASSWORD}"), "holds a secret"),
    (f"json://podium:{WORD}@host.example.org/${{PATH}}", "holds a secret"),
    (mail(25, service="mailto"), "the password would be sent in the clear. Write mailtos://"),
    (f"nosuch://{WORD}@host/${{TOKEN}}", "nosuch:// is no service that Apprise knows"),
    (f"slack://{WORD}", "Apprise cannot read this slack:// URL"),
    (f"https://example.org/{WORD}", "Apprise cannot read this https:// URL"),
    (f"{WORD}", "is not a URL"), ("", "is not a URL"), ("${my hook}", "is not a URL"), ("${A}${B}", "is not a URL"),
    (f"json://host/{WORD}\nsecond line", "is not a URL"), (f"json://{WORD * 1000}", "is not a URL"),
    (f"json://[::1/{WORD}", "Apprise cannot read this json:// URL"),
])  # fmt: skip
def test_a_url_that_cannot_be_used_is_refused_without_its_secret(workspace: Workspace, url: str, said: str) -> None:
    configure(workspace, channels=channel(url))
    with pytest.raises(ConfigError) as error:
        load_alerts(workspace.config)
    line = re.sub(r" \(line \d+\)", "", str(error.value))
    assert f"alerts.yaml: channels.team: url: {said}" in line.replace(": Value error,", ":")
    assert "\n" not in line and len(line) < 400 and TOKEN not in line and WORD not in line


@pytest.mark.parametrize("url", [
    "${ANYTHING}", "slack://${A}/${B}/${C}", "discord://${A}", "pagerduty://${KEY}@${ROUTE}", "tgram://${A}/12315544",
    "json://localhost:8080/alerts", "jsons://podium:${A}@example.org/alerts", "mailto://localhost?from=a@b.org&to=c@d.org",
    "mailtos://podium:${A}@smtp.example.org:465?mode=ssl&from=a@b.org&to=c@d.org",
])  # fmt: skip
def test_a_url_whose_secrets_are_in_the_environment_is_loaded_without_them(workspace: Workspace, url: str) -> None:
    configure(workspace, channels=channel(url))
    assert load_alerts(workspace.config).channels["team"].url == url


@pytest.mark.parametrize("settings", [
    {"channels": channel("json://host", "a\nb")}, {"channels": channel("json://host", f"slack://{WORD}")},
    {"channels": {"team": f"slack://{WORD}"}}, {"channels": [f"slack://{WORD}"]},
    {"channels": channel([f"slack://{WORD}"])}, {"channels": channel("json://host", password=WORD)},  # type: ignore[arg-type]
])  # fmt: skip
def test_a_misshapen_section_is_one_line_without_a_secret(workspace: Workspace, settings: dict[str, object]) -> None:
    configure(workspace, **settings)
    with pytest.raises(ConfigError) as error:
        load_alerts(workspace.config)
    assert "alerts.yaml: channels" in str(error.value) and WORD not in str(error.value)
    assert "\n" not in str(error.value)


def test_without_a_file_only_the_record_is_kept(workspace: Workspace) -> None:
    assert load_alerts(workspace.config) == Alerts()
    assert problems(workspace) == []


def test_the_command_sends_a_notice_and_prints_the_result(
    workspace: Workspace, hook: Hook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODIUM_ROOT", str(workspace.root))
    configure(workspace)
    assert podium("alerts", "test") == 0
    assert "has no channels" in capsys.readouterr().out
    configure(workspace, channels=channel("${MY_HOOK}", kinds=["promotion"]), attempts=1)
    assert podium("alerts", "test") == 0
    assert capsys.readouterr().out == "team: the service has accepted the message\n"
    hook.answers = [404]
    assert podium("alerts", "test") == 1
    assert "team: Failed to send JSON POST notification" in capsys.readouterr().out
    assert len(hook.taken) == 1
    assert podium("alerts", "list", "--count", "1") == 0
    assert "not sent: team: Failed" in capsys.readouterr().out
    configure(workspace, channels=channel("${MY_HOOK}", kinds=["nothing"]))
    assert podium("alerts", "test") == 1
    assert capsys.readouterr().err.startswith("error: ")


# ── catalogue ────────────────────────────────────────────────────────────────

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_code_sends_it(name: str) -> None:
    files = [file for package in ("ops", "assets", "pipelines") for file in (ROOT / package).rglob("*.py")]
    words = [re.findall(r"\w+", file.read_text(encoding="utf-8")) for file in files if file.name != "catalogue.py"]
    users = [each for each in words if each.count(name) > 1]  # an import and a use
    assert users, f"{name} is in the table and nothing sends it"


@pytest.mark.parametrize("alert", CATALOGUE.values(), ids=CATALOGUE)
def test_its_kind_is_one_of_the_configuration_and_its_command_exists(alert: Alert) -> None:
    assert alert.kind in ALERT_KINDS
    if not alert.command or alert.command.startswith("{"):
        return
    _, name, *rest = shlex.split(alert.command_template)
    command = main.podium.get_command(click.Context(main.podium), name)
    assert command is not None, name
    options = {each for parameter in command.params for each in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= options


def test_a_command_without_its_values_is_refused() -> None:
    with pytest.raises(KeyError, match="the_same_command"):
        RUN_FAILED.make_notice("a run failed")
