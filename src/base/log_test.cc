// SPDX-License-Identifier: Apache-2.0
// log_test.cc: levels, callback and file of the log sink.

#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"

namespace ciuic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class Log : public ::testing::Test {
 protected:
  void TearDown() override {
    set_log_callback({});
    set_log_level(LogLevel::kWarn);
    EXPECT_TRUE(set_log_file("").ok());
  }

  void collect() {
    set_log_callback([this](LogLevel level, std::string_view message) {
      lines_.emplace_back(level, std::string(message));
    });
  }

  std::vector<std::pair<LogLevel, std::string>> lines_;
};

TEST_F(Log, IsSilentBelowItsLevel) {
  collect();
  log_info("not seen {}", 1);
  log_warn("seen {}", 2);
  set_log_level(LogLevel::kDebug);
  log_trace("not seen");
  log_debug("seen {}", 3);
  EXPECT_THAT(lines_,
              ElementsAre(Pair(LogLevel::kWarn, "seen 2"), Pair(LogLevel::kDebug, "seen 3")));
}

TEST_F(Log, AppendsWholeLinesToAFileOfThisProcess) {
  const std::string folder = ::testing::TempDir();
  const std::string path = folder + "/ciuic_log_test." + std::to_string(getpid());
  ASSERT_TRUE(set_log_file(folder + "/ciuic_log_test.%p").ok());
  log_warn("first");
  log_info("hidden");
  log_warn("second");
  ASSERT_TRUE(set_log_file("").ok());
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr(" warn: first\n"));
  EXPECT_THAT(text, HasSubstr(" warn: second\n"));
  EXPECT_THAT(text, Not(HasSubstr("hidden")));
  std::remove(path.c_str());
}

TEST_F(Log, AFileThatCannotBeOpenedLeavesTheSinkAsItWas) {
  const Status missing = set_log_file("/nonexistent/folder/log");
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(missing.message(), HasSubstr("/nonexistent/folder/log"));
  EXPECT_EQ(set_log_file("/tmp/%q").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(set_log_file("/tmp/%").code(), StatusCode::kInvalidArgument);
  collect();
  log_warn("still here");
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(Log, ExpandsHostAndProcess) {
  const Result<std::string> path = expand_log_path("%h/%p/100%%");
  ASSERT_TRUE(path.ok());
  EXPECT_THAT(*path, HasSubstr("/" + std::to_string(getpid()) + "/100%"));
  EXPECT_THAT(*path, Not(HasSubstr("%h")));
}

TEST_F(Log, LevelsHaveNames) {
  for (LogLevel level : {LogLevel::kWarn, LogLevel::kInfo, LogLevel::kDebug, LogLevel::kTrace}) {
    EXPECT_EQ(log_level_named(name_of(level)), level);
  }
  EXPECT_EQ(log_level_named("loud"), std::nullopt);
}

TEST_F(Log, TakesLevelAndWarningsFromTheSettings) {
  collect();
  const std::vector<std::string> variables = {"CIUIC_LOG=info", "CIUIC_SPEED=9"};
  const Result<Config> config = Config::from(variables);
  ASSERT_TRUE(config.ok());
  ASSERT_TRUE(apply_log_settings(*config).ok());
  EXPECT_TRUE(log_enabled(LogLevel::kInfo));
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0].second, HasSubstr("CIUIC_SPEED"));
}

}  // namespace
}  // namespace ciuic
