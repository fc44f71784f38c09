# SPDX-License-Identifier: Apache-2.0
"""The templates of ``examples/launch``: they parse, and do what their launchers let them do."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import slurm as of_slurm
import yaml
from ciuic import _native

ROOT = Path(__file__).resolve().parents[3]
LAUNCH = ROOT / "examples" / "launch"
RECORDED = ROOT / "tests" / "python" / "environments"
TIMEOUT_S = 200

_FAKE_CIUIC = """\
#!/bin/sh
printf '%s\\n' "$@"
"""


def shell_of(path: Path) -> str:
    """What a template runs in a shell."""
    if path.suffix != ".yaml":
        return path.read_text()
    for document in yaml.safe_load_all(path.read_text()):
        if "run" in document:
            return document["run"]
        if "containers" in str(document):
            return container_of(document)["command"][2]
    raise AssertionError(f"{path.name} runs nothing")


def container_of(document: dict) -> dict:
    spec = document["spec"]
    for job in spec.get("replicatedJobs", []):
        spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    return container


def recorded(name: str) -> dict[str, str]:
    lines = (RECORDED / f"{name}.env").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if not line.startswith("#")]
    return {name: value.replace("\\n", "\n") for name, _, value in pairs}


# Each with the environment of its launcher, as it was recorded.
TEMPLATES = {
    "slurm.sbatch": "sbatch_script",
    "kubernetes_job.yaml": "kubernetes_indexed_job",
    "kubernetes_jobset.yaml": "kubernetes_jobset",
    "skypilot.yaml": "skypilot",
}


def test_none_is_forgotten() -> None:
    assert {path.name for path in LAUNCH.iterdir()} == {*TEMPLATES, "ray_train.py"}
    table = (ROOT / "examples" / "README.md").read_text()
    for path in LAUNCH.iterdir():
        assert f"`{path.name}`" in table


@pytest.mark.parametrize("name", TEMPLATES)
def test_they_say_what_to_change(name: str) -> None:
    head = (LAUNCH / name).read_text().partition("\n\n")[0]
    assert "# To change: " in head
    assert f"# {name}: " in head


@pytest.mark.parametrize("name", TEMPLATES)
def test_shells_take_them(name: str) -> None:
    checked = subprocess.run(
        ["bash", "-n"], input=shell_of(LAUNCH / name), text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(("name", "environment"), TEMPLATES.items())
def test_their_variables_are_known(name: str, environment: str) -> None:
    """Set by the launcher, by the template itself, or a setting of ours."""
    text = (LAUNCH / name).read_text()
    used = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]*)", shell_of(LAUNCH / name)))
    settings = {setting["name"] for setting in json.loads(_native.settings_json())}
    own = set(re.findall(r"(?:export |\$\{|name: |  )([A-Z][A-Z0-9_]*)(?:[=:]|$)", text, re.M))
    assert used <= own | set(recorded(environment)) | settings, used
    ours = set(re.findall(r"CIUIC_[A-Z_]+", text))
    assert ours <= settings


@pytest.mark.parametrize("name", ["kubernetes_job.yaml", "kubernetes_jobset.yaml"])
def test_pods_agree(name: str) -> None:
    documents = list(yaml.safe_load_all((LAUNCH / name).read_text()))
    job = documents[-1]
    spec = job["spec"]
    for replicated in spec.get("replicatedJobs", []):
        assert replicated["replicas"] == 1
        spec = replicated["template"]["spec"]
    container = container_of(job)
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    assert spec["completionMode"] == "Indexed"
    assert str(spec["completions"]) == str(spec["parallelism"]) == variables["WORLD_SIZE"]
    pods = job["metadata"]["name"]
    if name == "kubernetes_job.yaml":
        service = documents[0]
        assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["selector"] == {"job-name": pods}
        assert variables["MASTER_ADDR"] == f"{pods}-0.{service['metadata']['name']}"
    else:
        workers = job["spec"]["replicatedJobs"][0]["name"]
        assert variables["MASTER_ADDR"] == f"{pods}-{workers}-0-0.{pods}"


def test_ray_compiles() -> None:
    ast.parse((LAUNCH / "ray_train.py").read_text())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kubernetes_job.yaml", "--nnodes 4 --node-rank 2 --master-addr train-0.train"),
        (
            "kubernetes_jobset.yaml",
            "--nnodes 4 --node-rank 1 --master-addr train-workers-0-0.train",
        ),
        ("skypilot.yaml", "--nnodes 2 --node-rank 1 --master-addr 10.0.0.1"),
    ],
)
def test_what_they_start(name: str, words: str, tmp_path: Path, environment) -> None:
    ciuic = tmp_path / "ciuic"
    ciuic.write_text(_FAKE_CIUIC)
    ciuic.chmod(0o755)
    variables = {"RANKS": "8", "MASTER_PORT": "29500", **recorded(TEMPLATES[name])}
    done = subprocess.run(
        ["sh", "-c", shell_of(LAUNCH / name)],
        env=environment(**variables, PATH=f"{tmp_path}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    expected = ["run", *words.split(), *["--master-port", "29500", "-n", "8", "train.py"]]
    assert done.stdout.split() == expected


@pytest.mark.slow
def test_skypilot_on_two_nodes(tmp_path: Path, environment, programs: Path) -> None:
    """The run section, on two nodes that are this machine."""
    ciuic = tmp_path / "ciuic"
    ciuic.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ciuic "$@"\n')
    ciuic.chmod(0o755)
    (tmp_path / "train.py").write_text((programs / "met.py").read_text())
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        variables = {
            **{"RANKS": "2", "MASTER_PORT": str(holder.getsockname()[1])},
            **{"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1"},
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
        }
        nodes = [
            subprocess.Popen(
                ["sh", "-c", shell_of(LAUNCH / "skypilot.yaml")],
                env=environment(
                    **variables, SKYPILOT_NODE_RANK=str(node), CIUIC_HOST_ID=f"node {node}"
                ),
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for node in range(2)
        ]
        outputs = [node.communicate(timeout=TIMEOUT_S) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    met = [json.loads(line) for output, _ in outputs for line in output.splitlines() if "{" in line]
    assert sorted(one["rank"] for one in met) == [0, 1, 2, 3]
    assert {(one["hosts"], one["store"]) for one in met} == {(2, "torch")}


@pytest.mark.parametrize("meet", ["", "pmix", "directory"])
def test_sbatch(slurm, environment, hello_programs, tmp_path: Path, meet: str) -> None:
    output = tmp_path / "out"
    words = [f"--output={output}", "--nodes=1", "--ntasks-per-node=3", str(LAUNCH / "slurm.sbatch")]
    state = of_slurm.run_batch(
        slurm,
        [*words, *hello_programs["c++"]],
        environment(MEET=str(tmp_path) if meet == "directory" else meet),
    )
    assert state == "COMPLETED", output.read_text() + slurm.logs()
    expected = [f"rank {rank} of 3: [6, 12, 18]" for rank in range(3)]
    assert sorted(output.read_text().splitlines()) == expected


@pytest.mark.parametrize(("words", "meet"), [(["prog"], "else"), ([], "pmi2")])
def test_sbatch_of_nothing_says_how(environment, words: list[str], meet: str) -> None:
    done = subprocess.run(
        ["bash", str(LAUNCH / "slurm.sbatch"), *words],
        env=environment(MEET=meet),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    assert ("MEET=else: pmi2" if words else "usage: sbatch") in done.stderr
