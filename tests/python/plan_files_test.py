# SPDX-License-Identifier: Apache-2.0
"""Plans in files and in pictures, and ``ciuic plan``."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import ciuic
import pytest
from ciuic import _native, plan
from ciuic.cli.app import app
from ciuic.plan.modules import import_module
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("no_plan_stays")

runner = CliRunner()
ALGORITHMS = [(op, name) for op, names in _native.algorithms.items() for name in names]
SVG = "{http://www.w3.org/2000/svg}"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_plan.py"

MODULE = """
from ciuic import plan

def star(layout, rank, root):
    made = plan.Plan(input=1, output=1)
    if rank != root:
        made.receive(root, plan.output(0))
    else:
        made.send([peer for peer in range(layout.size) if peer != root], plan.input(0))
        made.copy(plan.input(0), plan.output(0))
    return made

plan.register("star", star, "broadcast")
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "my_plans.py"
    path.write_text(MODULE)
    return path


# ---- files ----


@pytest.mark.parametrize(("operation", "name"), ALGORITHMS, ids="-".join)
def test_every_algorithm_goes_to_a_file_and_back(operation: str, name: str, tmp_path) -> None:
    path = tmp_path / "plan.json"
    fitting = 0
    for text in ("3", "2x2"):
        try:
            plan.prove(name, text, operation=operation)
        except ciuic.InvalidArgumentError as error:
            assert "has no algorithm" in str(error)  # two levels, on one host
            continue
        fitting += 1
        root = 1 if operation in _native.rooted_operations else 0
        written = plan.export(name, text, path, operation=operation, root=root)
        assert path.read_text() == written
        assert plan.load(path, name="copy") == "copy"
        again = plan.export("copy", text, operation=operation, root=root)
        assert again == written.replace(f'"algorithm": "{name}"', '"algorithm": "copy"')
        plan.prove("copy", text, operation=operation, root=root)
        assert plan.simulate("copy", text, seeds=3, operation=operation, root=root).operations > 0
    assert fitting > 0


def test_a_file_is_for_its_layout_and_root(tmp_path: Path, module: Path) -> None:
    import_module(module)
    for layout, root in (("3", 0), ("3", 2), ("2x2", 1)):
        plan.export("star", layout, tmp_path / f"{layout}.{root}.json", root=root)
    plan.unregister("star", "broadcast")
    for path in sorted(tmp_path.glob("*.json")):
        assert plan.load(path) == "star"
    assert plan.registered() == {"broadcast": ["star"]}
    plan.prove("star", "3", root=2)
    plan.prove("star", "2x2")  # with the root that there is
    with pytest.raises(ciuic.InvalidArgumentError, match="no plan file for layout 3 with root 1"):
        plan.prove("star", "3", root=1)
    with pytest.raises(ciuic.InvalidArgumentError, match="there are some for 2x2 with root 1, 3 "):
        plan.describe("star", "4", root=0)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "null", '{"plans": []}', '{"plans": [{}]}', '{"plans": [1]}', "[" * 100_000],
)
def test_what_is_no_plan_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ciuic.InvalidArgumentError, match="is no plan file"):
        plan.load(path)
    assert plan.registered() == {}


def test_files_of_the_librarys_names_are_not_loaded(tmp_path: Path) -> None:
    plan.export("ring", 3, tmp_path / "ring.json")
    with pytest.raises(ciuic.InvalidArgumentError, match="take another name"):
        plan.load(tmp_path / "ring.json")
    with pytest.raises(OSError, match="no_file"):
        plan.load(tmp_path / "no_file")


# ---- pictures ----


def classes(root: ElementTree.Element, tag: str, name: str) -> int:
    return sum(name in each.get("class", "").split() for each in root.iter(SVG + tag))


@pytest.mark.parametrize(("operation", "name"), ALGORITHMS, ids="-".join)
@pytest.mark.parametrize("layout", ["1", "3+2"])
def test_pictures(operation: str, name: str, layout: str) -> None:
    try:
        text = plan.draw(name, layout, operation=operation)
    except ciuic.InvalidArgumentError as error:
        assert "has no algorithm" in str(error)
        return
    described = plan.describe(name, layout, operation=operation)
    root = ElementTree.fromstring(text)
    assert root.tag == SVG + "svg"
    assert classes(root, "path", "message") == described["totals"]["messages"]
    assert classes(root, "g", "step") == described["totals"]["steps"]
    assert classes(root, "rect", "row") == described["ranks"]
    for kind in ("send", "receive", "reduce", "copy"):
        steps = [step for each in described["plans"] for step in each["steps"]]
        assert classes(root, "g", kind) == sum(step["kind"] == kind for step in steps)


def test_boxes_stand_apart_and_arrows_lead_to_the_right(tmp_path: Path) -> None:
    text = plan.draw("ring", "2x2", tmp_path / "ring.svg")
    assert (tmp_path / "ring.svg").read_text() == text
    root = ElementTree.fromstring(text)
    places = [
        (rect.get("x"), rect.get("y"))
        for group in root.iter(SVG + "g")
        for rect in group.iter(SVG + "rect")
    ]
    assert len(set(places)) == len(places) > 0
    for path in root.iter(SVG + "path"):
        if path.get("class") == "message":
            numbers = [int(number) for number in re.findall(r"-?\d+", path.get("d", ""))]
            assert numbers[0] < numbers[-2]


def test_too_much_for_a_picture() -> None:
    with pytest.raises(ciuic.InvalidArgumentError, match="too many for a picture"):
        plan.draw("ring", 128)


# ---- the command ----


def command(*words: str | Path, code: int = 0) -> str:
    result = runner.invoke(app, ["plan", *(str(word) for word in words)])
    assert result.exit_code == code, result.output
    return re.sub(r"\s+", " ", result.output)


def test_a_module_of_ones_own(module: Path, tmp_path: Path) -> None:
    picture, file = tmp_path / "star.svg", tmp_path / "star.json"
    output = command(
        *("broadcast", "--module", module, "--algorithm", "star", "--layout", "2+1"),
        *("--prove", "--simulate", "3", "--draw", picture, "--export", file),
    )
    assert "algorithm star (not the one" in output
    assert "predicted" in output
    assert "proved with each of 3 roots" in output
    assert "simulated with 3 seeds from 1 on" in output
    assert ElementTree.parse(picture).getroot().tag == SVG + "svg"
    output = command("--file", file, "--prove")
    assert "broadcast, 3 ranks on 2 hosts (2+1)" in output
    assert "proved: for every element count" in output


def test_the_only_one_of_a_module_is_meant(module: Path) -> None:
    described = json.loads(command("--module", module, "-n", "3", "--root", "1", "--json"))
    assert (described["operation"], described["algorithm"]) == ("broadcast", "star")
    assert described["root"] == 1
    assert len(described["plans"]) == 3


def test_built_in_ones_too(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    output = command("all_reduce", "-n", "4", "--prove", "--simulate", "2", "--export", file)
    assert "(chosen)" in output
    assert "proved: " in output
    assert json.loads(file.read_text())["operation"] == "all_reduce"
    assert "proved: " in command("gather", "-n", "3", "--root", "2", "--prove")


def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    import_module(EXAMPLE)
    content = json.loads(plan.export("everyone", 3))
    del content["plans"][1]["steps"][1]["own_place"]
    file.write_text(json.dumps(content))
    assert "rank 1, output 0" in command("--file", file, code=2)
    del content["plans"][2]["steps"][0]
    file.write_text(json.dumps(content))
    assert "rank 2" in command("--file", file, "--prove", code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", "2"], "say which operation"),
        (["all_reduce"], "give -n RANKS"),
        (["all_reduce", "-n", "2", "--bytes", "x"], "is no size"),
        (["--file", "/no/such/file"], "--file: "),
        (["--file", "x", "-n", "2"], "--file has layout"),
        (["--module", "/no/such/file.py", "-n", "2"], "is no Python file"),
        (["--module", "MODULE", "all_reduce", "-n", "2"], "registers nothing; say --algorithm"),
        (["--module", "MODULE", "-n", "2", "--root", "2"], "root 2 is outside"),
        (["--module", "MODULE", "-n", "3", "--layout", "2"], "has 2 ranks, not 3"),
        (["all_reduce", "-n", "2", "--simulate", "-1"], "one or more"),
        (["all_reduce", "-n", "2", "--draw", "/no/such/place.svg"], "No such file"),
    ],
)
def test_words_that_cannot_be(words: list[str], message: str, module: Path) -> None:
    words = [str(module) if word == "MODULE" else word for word in words]
    assert message in command(*words, code=2)
