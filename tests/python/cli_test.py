# SPDX-License-Identifier: Apache-2.0
"""The command line: what it makes of words. What it starts is tested in tests/multiprocess."""

import json
import os
import subprocess
import sys

import ciuic
import pytest
from ciuic.cli.app import app
from typer.testing import CliRunner

runner = CliRunner()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list:
    """What would have been launched, instead of launching it."""
    calls: list = []

    def launch(command, nprocs, *, init=False, prefix=True):
        calls.append((command, nprocs, init, prefix))
        return 3

    monkeypatch.setattr("ciuic.run.launcher.launch", launch)
    return calls


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n", "2", "PROG", "-n", "9"], (["python", "PROG", "-n", "9"], 2, False, True)),
        (["--nproc_per_node=3", "PROG"], (["python", "PROG"], 3, False, True)),
        (["--nproc-per-node", "3", "--init", "PROG"], (["python", "PROG"], 3, True, True)),
        (
            ["-n", "1", "--init", "--", "PROG", "--", "-x"],
            (["python", "PROG", "--", "-x"], 1, True, True),
        ),
        (["--standalone", "-n2", "--raw", "PROG"], (["python", "PROG"], 2, False, False)),
        (["-n", "2", "-m", "a.b", "--x"], (["python", "-m", "a.b", "--x"], 2, False, True)),
        (["-n", "2", "--nnodes", "1", "sh", "-c", "x"], (["sh", "-c", "x"], 2, False, True)),
    ],
)
def test_run(launched: list, tmp_path, words: list[str], expected: tuple) -> None:
    program = tmp_path / "p.py"
    program.write_text("")
    names = {"PROG": str(program), "python": sys.executable}
    result = runner.invoke(app, ["run", *(names.get(word, word) for word in words)])
    assert result.exit_code == 3, result.output
    command = [names.get(word, word) for word in expected[0]]
    assert launched == [(command, *expected[1:])]


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "two", "sh"],
        ["-n", "2", "no_such_program"],
        ["-n", "2", "--nnodes", "x", "sh"],
        ["-n", "2", "--rdzv_endpoint", "a:1", "sh"],
        ["-n", "2"],
        [],
    ],
)
def test_run_refuses(launched: list, words: list[str]) -> None:
    assert runner.invoke(app, ["run", *words]).exit_code == 2
    assert launched == []


def test_replace(launched: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIUIC_REPLACE", "")
    result = runner.invoke(app, ["run", "-n", "2", "--replace", "nccl", "sh"])
    assert result.exit_code == 2
    assert "--replace nccl: only gloo can be replaced" in result.output
    assert launched == []
    assert runner.invoke(app, ["run", "-n", "2", "--replace", "gloo", "sh"]).exit_code == 3
    assert os.environ["CIUIC_REPLACE"] == "gloo"


def test_several_machines_are_torchruns(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    program = tmp_path / "p.py"
    program.write_text("")
    became: list = []

    def execv(path, command):
        became.append(command)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setenv("CIUIC_INIT", "")
    words = ["--nnodes=2", "--nproc_per_node=4", "--rdzv_endpoint=h:1", "--init", str(program), "x"]
    assert runner.invoke(app, ["run", *words]).exit_code == 0
    assert became == [
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=4"),
            *("--rdzv_endpoint=h:1", str(program), "x"),
        ]
    ]
    assert os.environ["CIUIC_INIT"] == "1"


def test_version() -> None:
    for command in (["--version"],):
        result = subprocess.run(
            [sys.executable, "-m", "ciuic", *command], capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 0
        assert result.stdout == f"ciuic {ciuic.version()}\n"


def test_info(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIUIC_LOG", "warn")
    monkeypatch.setenv("CIUIC_SECRET", "ab" * 32)
    result = runner.invoke(app, ["info", "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["version"] == ciuic.version()
    assert facts["host"]["cores"] >= 1
    assert any(interface["loopback"] for interface in facts["interfaces"])
    settings = {setting["name"]: setting for setting in facts["settings"]}
    assert settings["CIUIC_LOG"]["source"] != settings["CIUIC_TRANSPORT"]["source"]
    assert "abab" not in result.stdout
    result = runner.invoke(app, ["info"])
    assert result.exit_code == 0
    assert "CIUIC_TRANSPORT" in result.stdout
    assert "abab" not in result.stdout


def test_info_warns_of_what_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(runner.invoke(app, ["info", "--json"]).stdout)["warnings"] == []
    monkeypatch.setenv("CIUIC_TRANSPROT", "tcp")
    (warning,) = json.loads(runner.invoke(app, ["info", "--json"]).stdout)["warnings"]
    assert "did you mean CIUIC_TRANSPORT?" in warning
    assert "warning: CIUIC_TRANSPROT" in runner.invoke(app, ["info"]).stdout


def test_info_names_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIUIC_TRANSPORT", "pigeon")
    result = runner.invoke(app, ["info"])
    assert result.exit_code == 2
    assert "pigeon" in result.output


def test_import_is_quick_and_brings_nothing_in() -> None:
    text = (
        "import time; t = time.perf_counter(); import ciuic; s = time.perf_counter() - t\n"
        "import sys\n"
        "for name in ('torch', 'numpy', 'typer', 'rich', 'multiprocessing', 'asyncio'):\n"
        "    assert name not in sys.modules, name\n"
        "print(len(sys.modules))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_plan() -> None:
    words = ["plan", "all_reduce", "-n", "5", "--bytes", "1M"]
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "all_reduce, 5 ranks on 1 host" in result.stdout
    assert "predicted" in result.stdout
    result = runner.invoke(app, [*words, "--json"])
    described = json.loads(result.stdout)
    assert described["ranks"] == 5
    assert len(described["plans"]) == 5
    for layout, hosts in (("3+2", 2), ("4x2", 4)):
        result = runner.invoke(app, ["plan", "all_reduce", "--layout", layout, "--json"])
        assert json.loads(result.stdout)["hosts"] == hosts
    result = runner.invoke(app, [*words, "--algorithm", "ring", "--json"])
    assert json.loads(result.stdout)["algorithm"] == "ring"


@pytest.mark.parametrize(
    "words",
    [
        ["all_reduce"],
        ["no_such_operation", "-n", "2"],
        ["all_reduce", "-n", "2", "--bytes", "much"],
        ["all_reduce", "-n", "2", "--layout", "x+y"],
        ["all_reduce", "-n", "3", "--layout", "1+1"],
        ["all_reduce", "-n", "2", "--algorithm", "magic"],
        ["broadcast", "-n", "2", "--root", "2"],
    ],
)
def test_plan_refuses(words: list[str]) -> None:
    result = runner.invoke(app, ["plan", *words])
    assert result.exit_code == 2
    assert "ciuic plan: " in result.stderr
