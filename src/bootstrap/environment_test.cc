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
    EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
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
