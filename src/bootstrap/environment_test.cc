// SPDX-License-Identifier: Apache-2.0
// environment_test.cc: launchers' variables as they are met in the field.

#include "bootstrap/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ciuic::bootstrap {
namespace {

using ::testing::HasSubstr;
using Values = std::map<std::string, std::string>;

Result<Launched> launched(const Values& values) {
  return read_launcher([&values](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  });
}

const Values kTorchrun = {{"RANK", "5"},         {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "h0"}, {"MASTER_PORT", "29500"}};

TEST(Environment, Table) {
  struct Case {
    Values values;
    const char* launcher;
    int rank, size, local_rank, local_size;
  };
  Values torchrun_in_slurm = kTorchrun;
  torchrun_in_slurm.insert({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}});
  const Case cases[] = {
      {kTorchrun, "torchrun", 5, 8, 1, 4},
      {torchrun_in_slurm, "torchrun", 5, 8, 1, 4},
      {{{"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "Open MPI",
       2,
       4,
       0,
       2},
      {{{"PMI_RANK", "0"},
        {"PMI_SIZE", "2"},
        {"PMI_FD", "9"},
        {"MPI_LOCALRANKID", "0"},
        {"MPI_LOCALNRANKS", "2"}},
       "PMI",
       0,
       2,
       0,
       2},
      {{{"SLURM_PROCID", "3"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_LOCALID", "1"}},
       "Slurm",
       3,
       4,
       1,
       -1},
      {{{"SLURM_PROCID", "7"},
        {"SLURM_NTASKS", "16"},
        {"SLURM_STEP_NUM_TASKS", "8"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NODEID", "2"},
        {"SLURM_STEP_TASKS_PER_NODE", "3(x2),2"}},
       "Slurm",
       7,
       8,
       1,
       2},
      {{{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "job@1"}}, "PMIx", 1, -1, -1, -1},
      {{{"JOB_COMPLETION_INDEX", "3"}, {"WORLD_SIZE", "4"}}, "Kubernetes Indexed Job", 3, 4, 0, 1},
      {{{"SKYPILOT_NODE_RANK", "1"}, {"SKYPILOT_NUM_NODES", "2"}}, "SkyPilot", 1, 2, 0, 1},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "RANK and WORLD_SIZE", 0, 1, -1, -1},
  };
  for (const Case& c : cases) {
    Result<Launched> found = launched(c.values);
    ASSERT_TRUE(found.ok()) << c.launcher << ": " << found.status().message();
    EXPECT_EQ(found->launcher, c.launcher);
    EXPECT_EQ(found->rank, c.rank);
    EXPECT_EQ(found->size, c.size);
    EXPECT_EQ(found->local_rank, c.local_rank);
    EXPECT_EQ(found->local_size, c.local_size);
  }
}

TEST(Environment, TasksOfASlurmNode) {
  struct Case {
    const char* tasks;
    const char* node;
    int local_size;
  };
  for (const auto& [tasks, node, local_size] : {Case{"4", "0", 4},
                                                {"4", "1", -1},
                                                {"2(x3)", "2", 2},
                                                {"2(x3),1", "3", 1},
                                                {"2(x3),1", "4", -1},
                                                {"1,2,3", "1", 2},
                                                {"2(x", "0", -1},
                                                {"2(x2", "0", -1},
                                                {"2(y2)", "0", -1},
                                                {"x", "0", -1},
                                                {"", "0", -1},
                                                {"2(x3)", "many", -1}}) {
    Result<Launched> found = launched({{"SLURM_PROCID", "0"},
                                       {"SLURM_NTASKS", "9"},
                                       {"SLURM_STEP_ID", "0"},
                                       {"SLURM_LOCALID", "0"},
                                       {"SLURM_NODEID", node},
                                       {"SLURM_STEP_TASKS_PER_NODE", tasks}});
    ASSERT_TRUE(found.ok()) << tasks;
    EXPECT_EQ(found->local_size, local_size) << tasks << " " << node;
  }
}

TEST(Environment, VersionTwoOfPmiIsSlurms) {
  const auto version = [](const Values& values) {
    return pmi_version([&values](const char* name) -> std::optional<std::string> {
      const auto found = values.find(name);
      if (found == values.end()) return std::nullopt;
      return found->second;
    });
  };
  Values values = {{"PMI_FD", "9"}, {"PMI_RANK", "0"}};
  EXPECT_EQ(version(values), 1);
  values.insert({{"SLURM_STEP_ID", "0"}, {"PMI_JOBID", "2.0"}});
  EXPECT_EQ(version(values), 2);
  values.insert({"MPI_LOCALRANKID", "0"});  // Hydra within a step
  EXPECT_EQ(version(values), 1);
}

TEST(Environment, CountingNodesAsRanksIsSaid) {
  Result<Launched> found = launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(found->warning, HasSubstr("LOCAL_RANK"));
  EXPECT_THAT(found->warning, HasSubstr("torchrun (--nnodes=2 --node-rank=1"));
  EXPECT_EQ(launched(kTorchrun)->warning, "");
}

TEST(Environment, NothingListsWhatWasTried) {
  // A Slurm batch script has its variables, but is no step.
  for (const Values& values :
       {Values{}, Values{{"RANK", "0"}}, Values{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}}) {
    Result<Launched> found = launched(values);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), StatusCode::kUnavailable);
    for (const char* word : {"torchrun (RANK, WORLD_SIZE, LOCAL_RANK)", "OMPI_COMM_WORLD_RANK",
                             "PMI_RANK", "SLURM_PROCID", "ciuic run"}) {
      EXPECT_THAT(found.status().message(), HasSubstr(word));
    }
  }
}

TEST(Environment, BadValuesAreNamed) {
  for (const auto& [name, value] : {std::pair{"RANK", "x"},
                                    {"RANK", "-1"},
                                    {"WORLD_SIZE", "8.0"},
                                    {"LOCAL_RANK", ""},
                                    {"RANK", "99999999999999"}}) {
    Values values = kTorchrun;
    values[name] = value;
    Result<Launched> found = launched(values);
    ASSERT_FALSE(found.ok()) << name << "=" << value;
    EXPECT_THAT(found.status().message(), HasSubstr(std::string(name) + "="));
  }
  Values values = kTorchrun;
  values["RANK"] = "8";
  EXPECT_THAT(launched(values).status().message(), HasSubstr("RANK=8 is outside WORLD_SIZE=8"));
}

}  // namespace
}  // namespace ciuic::bootstrap
