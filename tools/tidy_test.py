# SPDX-License-Identifier: Apache-2.0
"""Tests of tidy: each rule on the smallest file that keeps it and the smallest that breaks it."""

from __future__ import annotations

import tidy
import tidy_cpp
from tidy import File

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
PYTHON_SPDX = "# SPDX-License-Identifier: Apache-2.0\n"


def found(check, path: str, text: str) -> list[str]:
    return [complaint.text for complaint in check(File(path, text))]


def layers(path: str, *includes: str) -> list[str]:
    return found(tidy.check_layers, path, "".join(f"#include {name}\n" for name in includes))


def test_layers_allow_what_stands_left():
    inner = ['"base/status.h"', '"plan/plan.h"', '"transport/link.h"', '"memory/staging_pool.h"']
    assert layers("src/engine/engine.cc", "<vector>", '"engine/engine.h"', *inner) == []
    assert layers("src/sim/world.cc", '"communicator/state.h"', '"transport/link.h"') == []
    assert layers("python/native/module.cc", '"ciuic/communicator.h"', '"communicator/x.h"') == []


def test_layers_refuse_the_right_and_siblings():
    assert len(layers("src/plan/ring.cc", '"engine/engine.h"')) == 1
    assert len(layers("src/plan/ring.cc", '"wire/header.h"')) == 1
    assert len(layers("src/engine/engine.cc", '"collective/all_reduce.h"')) == 1


def test_layers_refuse_sim_to_everybody_else():
    assert len(layers("src/communicator/communicator.cc", '"sim/world.h"')) == 1
    assert len(layers("tests/multiprocess/group_test.cc", '"sim/world.h"')) == 1
    assert layers("src/sim/world_test.cc", '"sim/world.h"') == []
    assert layers("python/native/plan_py.cc", '"sim/world.h"') == []


def test_layers_keep_transports_apart():
    assert len(layers("src/transport/tcp/tcp_link.cc", '"transport/shm/shm_link.h"')) == 1
    assert len(layers("src/transport/link.h", '"transport/shm/shm_link.h"')) == 1
    assert layers("src/transport/test_pairs.h", '"transport/shm/shm_link.h"') == []
    own = ['"transport/link.h"', '"transport/tcp/frame.h"']
    assert layers("src/transport/tcp/tcp_link.cc", *own) == []


def test_layers_give_inner_folders_value_headers_only():
    assert layers("src/engine/engine.h", '"ciuic/work.h"') == []
    assert len(layers("src/engine/engine.h", '"ciuic/communicator.h"')) == 1
    assert layers("src/communicator/communicator.cc", '"ciuic/communicator.h"') == []


def test_layers_keep_system_headers_out_of_public_ones():
    assert layers("include/ciuic/work.h", "<functional>", '"ciuic/status.h"') == []
    assert len(layers("include/ciuic/work.h", "<sys/socket.h>")) == 1
    assert len(layers("include/ciuic/work.h", "<fmt/format.h>")) == 1
    assert len(layers("include/ciuic/work.h", '"engine/engine.h"')) == 1


def test_layers_know_every_folder():
    assert len(layers("src/drawer/x.cc", "<vector>")) == 1


def test_sizes_of_files_and_lines():
    lines = "int x;\n"
    assert found(tidy.check_sizes, "src/plan/a.h", lines * 250) == []
    assert len(found(tidy.check_sizes, "src/plan/a.h", lines * 251)) == 1
    assert found(tidy.check_sizes, "src/plan/a.cc", lines * 500) == []
    assert len(found(tidy.check_sizes, "src/plan/a.cc", lines * 501)) == 1
    assert found(tidy.check_sizes, "src/plan/a.cc", "/" * 100) == []
    assert len(found(tidy.check_sizes, "src/plan/a.cc", "/" * 101)) == 1


def test_sizes_of_functions():
    body = "  x();\n"
    assert found(tidy.check_sizes, "src/plan/a.cc", f"void f() {{\n{body * 68}}}\n") == []
    assert len(found(tidy.check_sizes, "src/plan/a.cc", f"void f() {{\n{body * 69}}}\n")) == 1
    python = "def f():\n" + '    """' + "doc\n" * 80 + '"""\n' + "    x()\n" * 69
    assert found(tidy.check_sizes, "python/ciuic/a.py", python) == []
    assert len(found(tidy.check_sizes, "python/ciuic/a.py", python + "    x()\n")) == 1


def names(text: str) -> list[tuple[str, int, int]]:
    return [(f.name, f.first_line, f.last_line) for f in tidy_cpp.functions(text)]


def test_functions_in_namespaces_and_classes():
    text = """
namespace ciuic::plan {
class Plan : public Base<int(int)> {
 public:
  int size() const { return size_; }
  Plan& operator=(const Plan&) = delete;

 private:
  int size_{0};
};
static int around(int index,
                  int size) {
  if (index) {
    return 1;
  }
  return 0;
}
}  // namespace ciuic::plan
"""
    assert names(text) == [("size", 5, 5), ("around", 11, 17)]


def test_functions_with_member_initialisers():
    text = """
Engine::Engine(StagingPool* staging)
    : staging_{staging}, map_(make({1, 2})), list_{{1}, {2}} {
  start();
}
Engine::~Engine() = default;
Group::Group() : engine_(nullptr) {}
"""
    assert names(text) == [("Engine::Engine", 2, 5), ("Group::Group", 7, 7)]


def test_functions_are_not_tables_enums_or_texts():
    text = """
constexpr Row kRows[] = {
    {"a {", 1},
    {'{', 2},  // {
};
enum class Kind : uint8_t { kOne, kTwo };
const char* kRaw = R"json({"a": {)json";
#define OPEN(x) \\
  if (x) {
template <typename T, typename = std::enable_if_t<(sizeof(T) > 1)>>
T twice(T x = T{}) {
  return x + 1'000'000;
}
extern "C" {
int plain(void) { return 0; }
}
"""
    assert [name for name, _, _ in names(text)] == ["twice", "plain"]


def test_functions_name_test_cases():
    text = "TEST(Plan, Ring) {\n  EXPECT_TRUE(true);\n}\n"
    assert names(text) == [("TEST(Plan, Ring)", 1, 3)]


def test_head_of_cpp():
    check = tidy.check_head
    good = SPDX + "// a.h: what it is for.\n#pragma once\n"
    assert found(check, "src/plan/a.h", good) == []
    assert len(found(check, "src/plan/a.h", good.replace("#pragma once\n", ""))) == 1
    toggle = "#if defined(A_H_) == defined(HWY_TARGET_TOGGLE)\n"
    assert not found(check, "src/plan/a.h", good.replace("#pragma once\n", toggle))
    assert len(found(check, "src/plan/b.h", good)) == 1
    assert len(found(check, "src/plan/a.cc", "// a.cc: first things first\n")) == 1


def test_head_of_python_and_shell():
    check = tidy.check_head
    assert found(check, "tools/a.py", PYTHON_SPDX + '"""What for."""\n') == []
    assert len(found(check, "tools/a.py", PYTHON_SPDX + "import os\n")) == 1
    assert len(found(check, "tools/a.py", "")) == 1
    script = "#!/usr/bin/env bash\n" + PYTHON_SPDX
    assert found(check, "tools/a.sh", script + "# a.sh: what for\n") == []
    assert len(found(check, ".ci/run", script + "set -e\n")) == 1
    assert len(found(check, "Makefile", "all:\n")) == 1
    assert found(check, "README.md", "# Ciuic\n") == []


def test_names_that_say_nothing():
    check = tidy.check_names
    assert len(found(check, "src/base/string_util.h", "")) == 1
    assert len(found(check, "src/common/x.h", "")) == 1
    assert len(found(check, "python/ciuic/helpers.py", "")) == 1
    assert found(check, "src/plan/utilisation.h", "") == []


def test_environment_has_one_reader():
    check = tidy.check_environment
    assert found(check, "src/base/config.cc", 'getenv("X");\n') == []
    assert len(found(check, "src/engine/a.cc", 'std::getenv("X");\n')) == 1
    assert len(found(check, "python/native/a.cc", "extern char** environ;\n")) == 1
    assert found(check, "src/engine/a.cc", '// getenv("X")\nlog("getenv");\n') == []
    assert found(check, "src/engine/a_test.cc", 'getenv("X");\n') == []


def test_paths_of_one_machine():
    check = tidy.check_paths
    assert len(found(check, "Makefile", "run: /home/someone/bin\n")) == 1
    assert found(check, "Makefile", "run: ./work/x $(HOME)/work/y /usr/bin/env\n") == []


def tree(*files: File) -> list[str]:
    return [f"{c.path}: {c.text}" for check in tidy.TREE_CHECKS for c in check(list(files))]


def test_readmes_are_there_and_short():
    source = File("src/plan/a.cc", "")
    assert tree(source) == ["src/plan/README.md: is missing"]
    assert tree(source, File("src/plan/README.md", "x\n" * 40)) == []
    assert len(tree(source, File("src/plan/README.md", "x\n" * 41))) == 1


def test_test_names_are_unique():
    readme = File("src/plan/README.md", "")
    one = File("src/plan/a_test.cc", "TEST(A, B) {}\nTEST_F(A, C) {}\n")
    other = File("src/plan/b_test.cc", "// TEST(A, C) is elsewhere\nTEST(A, B) {}\n")
    assert tree(readme, one) == []
    assert tree(readme, one, other) == [
        "src/plan/b_test.cc: test A.B is also in src/plan/a_test.cc:1"
    ]
    twice = "def test_a(): ...\nclass TestB:\n    def test_a(self): ...\n"
    assert tree(File("tests/python/a_test.py", twice)) == []
    assert len(tree(File("tests/python/a_test.py", twice + "def test_a(): ...\n"))) == 1


def test_exemptions_are_of_files_that_are_there(monkeypatch):
    monkeypatch.setitem(tidy.SIZE_EXEMPT, "src/plan/table.cc", "a table")
    assert len(tree(File("src/plan/README.md", ""))) == 1
    table = File("src/plan/table.cc", "x;\n" * 600)
    assert tree(File("src/plan/README.md", ""), table) == []
    assert list(tidy.check_sizes(table)) == []
