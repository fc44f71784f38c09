# SPDX-License-Identifier: Apache-2.0
"""``ciuic report``: what it takes, and that no secret is in it, wherever one was planted."""

import io
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest
from ciuic import CiuicContext
from ciuic.cli.app import app
from ciuic.report import archive, facts
from ciuic.report.strip import Stripper
from ciuic.trace import recording
from typer.testing import CliRunner, Result

HEX = "5ec2e7" * 10 + "abcd"
PLANTED = {  # by variable; some of them none that a report takes
    "CIUIC_SECRET": HEX,
    "HF_TOKEN": "correct-horse-battery",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCY",
    "DATABASE_PASSWORD": 'p\xe4ss "w\xf6rd" & more',
    "NCCL_PLUGIN_API_KEY": "nccl-key-value",
    "GLOO_CREDENTIALS": "gl00-cr3d",
}
USER_INFO = "aladdin:opensesame"
USER = "alice"
HOMES = "/home"
HOME = f"{HOMES}/{USER}"
HARMLESS = {
    "CIUIC_LOG": "info",
    "NCCL_DEBUG": "WARN",
    "MASTER_ADDR": "10.1.2.3",
    "OMPI_COMM_WORLD_SIZE": "4",
}
OTHERS = {"EDITOR": "quite-special-editor", "SLURM_JOB_ACCOUNT": "special-account"}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that must not be found."""
    for name, value in {**PLANTED, **HARMLESS, **OTHERS}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CIUIC_STORE", f"tcp://{USER_INFO}@10.1.2.3:29500")
    monkeypatch.setenv("NCCL_TOPO_FILE", f"{HOME}/traces/of-{PLANTED['HF_TOKEN']}")
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setenv("USER", USER)
    return [*PLANTED.values(), *OTHERS.values(), USER_INFO, "opensesame", USER]


@pytest.fixture
def stripper() -> Stripper:
    return Stripper({**PLANTED, "STORE": f"tcp://{USER_INFO}@h"}, [HOME], [USER, "root"])


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["report", *words])


def opened(path: Path) -> dict[str, bytes]:
    """The members, after a look at the archive as it is stored."""
    with tarfile.open(path, "r:gz") as tar:
        entries = tar.getmembers()
        assert all(entry.name.startswith(f"{archive.FOLDER}/") for entry in entries)
        assert {(entry.uid, entry.uname, entry.gname) for entry in entries} == {(0, "", "")}
        files = {entry.name: tar.extractfile(entry) for entry in entries}
        return {
            name.partition("/")[2]: file.read() for name, file in files.items() if file is not None
        }


def assert_clean(members: dict[str, bytes], planted: list[str]) -> None:
    for name, data in members.items():
        text = data.decode("utf-8", "replace") + name
        for secret in planted:
            for found in (secret, json.dumps(secret)[1:-1]):
                at = text.find(found)
                assert at < 0, f"{name} has {secret!r}: {text[max(0, at - 40) : at + 60]!r}"


def dump_with_secrets(directory: Path) -> Path:
    """Of a group whose name, and whose end, tell everything."""
    token, password = PLANTED["HF_TOKEN"], PLANTED["DATABASE_PASSWORD"]
    context = CiuicContext(1, 0, group_name=f"group of {USER} {token}", store=None)
    key = PLANTED["AWS_SECRET_ACCESS_KEY"]
    told = f"{token} {password} http://{USER_INFO}@proxy/ {HOME}/data secret={HEX} API_KEY: hunter2"
    # A dump cuts long texts off: here in the middle of a secret.
    context.abort(f"{told} {'.' * 500}"[:270] + " " + key)
    with pytest.raises(Exception):  # noqa: B017
        context.barrier()
    (data,) = recording.dumps_of_process(os.getpid())
    return recording.write_dump(directory, data)


def test_no_secret_is_in_it(planted: list[str], tmp_path: Path, ctx: CiuicContext) -> None:
    dump = dump_with_secrets(tmp_path)
    raw = dump.read_bytes()
    key = PLANTED["AWS_SECRET_ACCESS_KEY"]
    for secret in (PLANTED["HF_TOKEN"], USER_INFO, key[:12]):
        assert secret.encode() in raw  # else this test proves little
    assert key.encode() not in raw
    before = tmp_path / "selftest.json"
    said = [f"rank 0 said {value} of {USER}, password={value}" for value in PLANTED.values()]
    failures = [{"name": "tcp", "text": text, "hub_token": "t0ps3cret"} for text in said]
    before.write_text(json.dumps({"failed": 1, "failures": failures}))
    output = tmp_path / "report.tar.gz"
    result = run(str(tmp_path), "-o", str(output), "--selftest", str(before))
    assert result.exit_code == 0, result.output
    members = opened(output)
    assert_clean(members, [*planted, key[:8], "t0ps3cret", "hunter2"])
    assert_clean({"output": result.output.replace(str(tmp_path), "").encode()}, planted)
    assert f"traces/{dump.name}" in members
    assert "traces/trace.txt" in members and "sent nowhere" in result.output
    # What was no secret is still there: the dump can be read, and so can the rest.
    (again,) = recording.of_paths([write(tmp_path / "again", members[f"traces/{dump.name}"])])
    assert len(again.groups) == len(recording.of_file(dump).groups)
    assert again.operations == recording.of_file(dump).operations
    found = json.loads(members["environment.json"])
    assert {name: found[name] for name in HARMLESS} == HARMLESS
    assert found["CIUIC_SECRET"] == found["NCCL_PLUGIN_API_KEY"] == "(hidden)"
    assert found["CIUIC_STORE"] == "tcp://(hidden)@10.1.2.3:29500"
    assert found["NCCL_TOPO_FILE"] == "~/traces/of-(hidden)"
    assert not set(found) & (set(OTHERS) | {"HF_TOKEN", "HOME", "USER"})
    assert json.loads(members["selftest.json"])["failed"] == 1
    assert stat.S_IMODE(output.stat().st_mode) == 0o600


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_of_a_process(planted: list[str], tmp_path: Path, ctx: CiuicContext) -> None:
    ctx.barrier()
    output = tmp_path / "report.tar.gz"
    words = ["--pid", str(os.getpid()), "--pid", "999999999", "--no-selftest", "-o", str(output)]
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "not read: there is no process 999999999" in result.output
    members = opened(output)
    assert_clean(members, planted)
    assert "selftest.json" not in members
    assert any(name.endswith(".ciuic-trace") for name in members)
    for name in members:
        assert name in result.output or name == "README.txt"
    versions = json.loads(members["versions.json"])
    assert versions["python"] and versions["kernel"] and "numpy" in versions["packages"]
    machine = json.loads(members["machine.json"])
    assert machine["limits"]["RLIMIT_NOFILE"] and machine["interfaces"]["lo"]["mtu"]
    assert json.loads(members["info.json"])["version"]


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    there = write(tmp_path / "there.tar.gz", b"mine")
    assert run("--no-selftest", "-o", str(there)).exit_code == 2
    assert there.read_bytes() == b"mine"
    missing = tmp_path / "missing" / "x.tar.gz"
    for words in (
        ["--no-selftest", "-o", str(missing)],
        ["-o", str(tmp_path / "x"), "--selftest", str(there)],
        ["-o", str(tmp_path / "x"), "--selftest", str(there), "--no-selftest"],
        ["-o", str(tmp_path / "x"), "--no-selftest", str(there)],
        ["-o", str(tmp_path / "x"), "--no-selftest", str(tmp_path / "no-such-dump")],
    ):
        assert run(*words).exit_code == 2, words
    assert os.listdir(tmp_path) == ["there.tar.gz"]


def test_a_broken_setting_is_part_of_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CIUIC_TIMEOUT_MS", "soon")
    output = tmp_path / "report.tar.gz"
    assert run("--no-selftest", "-o", str(output)).exit_code == 0
    assert "CIUIC_TIMEOUT_MS=soon" in json.loads(opened(output)["info.json"])["error"]


def test_a_last_look(stripper: Stripper, tmp_path: Path) -> None:
    """Whatever the rules have missed: a member with a known secret is not written."""
    path = tmp_path / "x.tar.gz"
    members = {"good.txt": b"fine", "bad.txt": f"<{PLANTED['HF_TOKEN']}>".encode()}
    left_out, size = archive.write(path, members, stripper)
    assert left_out == ["bad.txt"]
    assert size == path.stat().st_size
    assert set(opened(path)) == {"good.txt", "README.txt"}


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("tcp://u:p@ss@host/x", "tcp://(hidden)@host/x"),
        ("http://h/?access_token=abc&b=1", "http://h/?access_token=(hidden)&b=1"),
        ('{"api_key": "a b"}', '{"api_key": "(hidden)"}'),
        ("MY_PASSWORD='it is'; x", "MY_PASSWORD='(hidden)'; x"),
        ("run --auth-token abc -n 2", "run --auth-token (hidden) -n 2"),
        ("Authorization: Bearer abcdefgh.ij", "Authorization: Bearer (hidden)"),
        ("cloned with ghp_abcdefgh12345", "cloned with (hidden)"),
        (f"of {HEX[:40]}!", "of (hidden)!"),
        (f"{HOMES}/bob/x and /Users/eve/y", f"{HOMES}/(user)/x and /Users/(user)/y"),
        (f"{HOME}/x, {HOME}tte", f"~/x, {HOMES}/(user)"),
        ("alice-laptop of alice, not malice", "(user)-laptop of (user), not malice"),
        ("the end is correct-horse-b", "the end is (hidden)"),
        ("aladdin came in: opensesame", "aladdin came in: (hidden)"),
        ("root 0 reduces float32, 1024 elements", "root 0 reduces float32, 1024 elements"),
        ("key 'context-0/card' is not in the store", "key 'context-0/card' is not in the store"),
        ("boot 0b5c7a52-6f0f-4c4e-9a4e-1c5b0b4b1d0e", "boot 0b5c7a52-6f0f-4c4e-9a4e-1c5b0b4b1d0e"),
    ],
)
def test_rules(stripper: Stripper, text: str, right: str) -> None:
    assert stripper.text(text) == right
    # In bytes as many stars, and all else where it was.
    data = b"\x00\x01" + text.encode() + b"\x00\xff\x02"
    masked = stripper.data(data)
    assert len(masked) == len(data)
    assert (b"*" in masked) == (text != right)
    assert masked[:2] == data[:2] and masked[-3:] == data[-3:]


def test_only_named_variables_are_taken() -> None:
    taken = facts.environment({"RANK": "1", "RANDOM": "2", "PATH": "3", "LOCAL_RANK": "4"})
    assert taken == {"RANK": "1", "LOCAL_RANK": "4"}


def test_default_names_are_new_and_plain() -> None:
    assert archive.default_name().startswith("ciuic-report-2")
    assert io.BytesIO(archive.README.encode()).readline().startswith(b"A report of Ciuic")
