// SPDX-License-Identifier: Apache-2.0
// config_test.cc: settings from text, their errors, and what `ciuic info` shows of them.

#include "base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/printable.h"

namespace ciuic {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Config> read(const std::vector<std::string>& variables) { return Config::from(variables); }

TEST(Config, DefaultsAreThoseOfTheTable) {
  const Result<Config> none = read({});
  ASSERT_TRUE(none.ok());
  // Every default that can be written as a value is read back to the same struct.
  std::vector<std::string> written;
  for (const Setting& setting : settings()) {
    written.push_back(std::string(setting.name) + "=" + setting.default_value);
  }
  const Result<Config> all = read(written);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->transport, none->transport);
  EXPECT_EQ(all->tls, none->tls);
  EXPECT_EQ(all->log_level, none->log_level);
  EXPECT_EQ(all->timeout_ms, none->timeout_ms);
  EXPECT_EQ(all->buffer_size, none->buffer_size);
  EXPECT_EQ(all->spin_us, none->spin_us);
  EXPECT_EQ(all->trace_events, none->trace_events);
  EXPECT_EQ(all->store, "");
  EXPECT_TRUE(all->warnings.empty());
  EXPECT_EQ(none->timeout_ms, kDefaultTimeoutMs);
  EXPECT_EQ(none->buffer_size, kDefaultBufferSize);
}

TEST(Config, ReadsEverySetting) {
  const Result<Config> config = read({"CIUIC_TRANSPORT=tcp",
                                      "CIUIC_HOST_ID=host a",
                                      "CIUIC_STORE=tcp://10.0.0.1:4711",
                                      "CIUIC_SECRET=00FFa0b1c2d3e4f5061728394a5b6c7d",
                                      "CIUIC_TLS=1",
                                      "CIUIC_LOG=trace",
                                      "CIUIC_LOG_FILE=/tmp/a.%h.%p",
                                      "CIUIC_TIMEOUT_MS=250",
                                      "CIUIC_BUFFER_SIZE=2G",
                                      "CIUIC_SOCKET_IFNAME=^docker,10.0.0.0/8",
                                      "CIUIC_ADVERTISE_ADDRESS=[fd00::1]:4711",
                                      "CIUIC_PORT_RANGE=20000-20999",
                                      "CIUIC_SPIN_US=20",
                                      "CIUIC_BACKEND=mpi",
                                      "CIUIC_CHECK=1",
                                      "CIUIC_MPI_LIBRARY=/opt/mpi/lib/libmpi_abi.so.1",
                                      "CIUIC_CUDA_LIBRARY=libcudart.so.12",
                                      "CIUIC_NCCL_LIBRARY=/opt/nccl/libnccl.so.2",
                                      "CIUIC_TRACE_EVENTS=64",
                                      "CIUIC_REPLACE=gloo",
                                      "CIUIC_TRACE_DIR=/tmp/a b",
                                      "CIUIC_TRACE_FD=9",
                                      "HOME=/root",
                                      "CIUICOTHER=1"});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->transport, TransportChoice::kTcp);
  EXPECT_EQ(config->host_id, "host a");
  EXPECT_EQ(config->store, "tcp://10.0.0.1:4711");
  EXPECT_EQ(config->secret.size(), 16u);
  EXPECT_EQ(config->secret.substr(0, 3), std::string("\x00\xff\xa0", 3));
  EXPECT_TRUE(config->tls);
  EXPECT_EQ(config->log_level, LogLevel::kTrace);
  EXPECT_EQ(config->log_file, "/tmp/a.%h.%p");
  EXPECT_EQ(config->timeout_ms, 250);
  EXPECT_EQ(config->buffer_size, size_t{2} << 30);
  EXPECT_EQ(config->socket_ifname, "^docker,10.0.0.0/8");
  EXPECT_EQ(config->advertise_address, "[fd00::1]:4711");
  EXPECT_EQ(config->port_range, (PortRange{20000, 20999}));
  EXPECT_EQ(config->spin_us, 20);
  EXPECT_EQ(config->backend, "mpi");
  EXPECT_TRUE(config->check);
  EXPECT_EQ(config->mpi_library, "/opt/mpi/lib/libmpi_abi.so.1");
  EXPECT_EQ(config->cuda_library, "libcudart.so.12");
  EXPECT_EQ(config->nccl_library, "/opt/nccl/libnccl.so.2");
  EXPECT_EQ(config->trace_events, 64);
  EXPECT_EQ(config->trace_dir, "/tmp/a b");
  EXPECT_EQ(config->trace_fd, 9);
  EXPECT_TRUE(config->warnings.empty());
  for (const SettingState& state : config->states) EXPECT_TRUE(state.from_environment);
}

TEST(Config, AnInvalidValueIsNamedWithWhatIsAllowed) {
  const struct {
    const char* variable;
    const char* value;
    const char* allowed;
  } cases[] = {
      {"CIUIC_TRANSPORT", "udp", "auto, shm, tcp or rdma"},
      {"CIUIC_STORE", "http://a", "tcp://host:port"},
      {"CIUIC_TLS", "yes", "0 or 1"},
      {"CIUIC_LOG", "WARN", "warn, info"},
      {"CIUIC_LOG_FILE", "/tmp/%x", "%h"},
      {"CIUIC_TIMEOUT_MS", "0", "1 or more"},
      {"CIUIC_TIMEOUT_MS", "10s", "1 or more"},
      {"CIUIC_TIMEOUT_MS", "99999999999999999999", "1 or more"},
      {"CIUIC_BUFFER_SIZE", "64MM", "K, M and G"},
      {"CIUIC_BUFFER_SIZE", "0", "1 or more"},
      {"CIUIC_SOCKET_IFNAME", "eth0 eth1", "with commas"},
      {"CIUIC_ADVERTISE_ADDRESS", "10.0.0.1,10.0.0.2", "a numeric address"},
      {"CIUIC_PORT_RANGE", "20000", "FIRST-LAST"},
      {"CIUIC_PORT_RANGE", "20000-", "FIRST-LAST"},
      {"CIUIC_PORT_RANGE", "0-20", "1 to 65535"},
      {"CIUIC_PORT_RANGE", "20999-20000", "FIRST not above LAST"},
      {"CIUIC_PORT_RANGE", "20000-65536", "1 to 65535"},
      {"CIUIC_PORT_RANGE", "20000-20999,30000-30999", "FIRST-LAST"},
      {"CIUIC_SPIN_US", "-2", "-1 (adaptive)"},
      {"CIUIC_TRACE_EVENTS", "-1", "0 (off)"},
      {"CIUIC_TRACE_EVENTS", "4194305", "4194304"},
      {"CIUIC_TRACE_FD", "x", "descriptor"},
  };
  for (const auto& [variable, value, allowed] : cases) {
    const Result<Config> config = read({std::string(variable) + "=" + value});
    ASSERT_FALSE(config.ok()) << variable << "=" << value;
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(config.status().message(),
                AllOf(HasSubstr(variable), HasSubstr(value), HasSubstr(allowed)));
  }
}

TEST(Config, AHostIdIsALine) {
  for (const std::string& wrong :
       {std::string(129, 'a'), std::string("a\nb"), std::string("\xff")}) {
    const Result<Config> config = read({"CIUIC_HOST_ID=" + wrong});
    ASSERT_FALSE(config.ok());
    EXPECT_THAT(config.status().message(), AllOf(HasSubstr("CIUIC_HOST_ID"), HasSubstr("a line")));
    EXPECT_EQ(config.status().message(), printable(config.status().message()));
  }
  EXPECT_TRUE(read({"CIUIC_HOST_ID=" + std::string(128, 'a')}).ok());
}

TEST(Config, TheSecretIsNeverShown) {
  const std::string secret = "0123456789abcdef0123456789abcdef";
  const Result<Config> good = read({"CIUIC_SECRET=" + secret});
  ASSERT_TRUE(good.ok());
  EXPECT_THAT(good->to_json(), AllOf(HasSubstr("(hidden)"), Not(HasSubstr(secret))));
  for (const std::string& wrong : {secret + "f", secret + "xy", std::string("abcd")}) {
    const Result<Config> bad = read({"CIUIC_SECRET=" + wrong});
    ASSERT_FALSE(bad.ok()) << wrong;
    EXPECT_THAT(bad.status().message(), Not(HasSubstr(wrong)));
  }
}

TEST(Config, AnUnknownVariableIsWarnedOfWithTheNearest) {
  const Result<Config> config = read({"CIUIC_TIMEOUT=5", "CIUIC_TRANSPORTS=shm"});
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->warnings,
              ElementsAre(AllOf(HasSubstr("CIUIC_TIMEOUT "), HasSubstr("CIUIC_TIMEOUT_MS?")),
                          AllOf(HasSubstr("CIUIC_TRANSPORTS "), HasSubstr("CIUIC_TRANSPORT?"))));
}

TEST(Config, JsonTellsValueAndSource) {
  const Result<Config> config = read({"CIUIC_HOST_ID=a\"b", "CIUIC_SPIN_US=7"});
  ASSERT_TRUE(config.ok());
  const std::string json = config->to_json();
  EXPECT_THAT(json, HasSubstr(R"("value": "a\"b")"));
  EXPECT_THAT(json, HasSubstr(R"("name": "CIUIC_SPIN_US", "value": "7", "unit": "microseconds")"));
  EXPECT_THAT(json, HasSubstr(R"("source": "environment")"));
  EXPECT_THAT(json, HasSubstr(R"("value": "64M")"));
}

TEST(Config, ReadsTheEnvironmentAtEachCall) {
  setenv("CIUIC_SPIN_US", "11", 1);
  const Result<Config> first = Config::from_environment();
  setenv("CIUIC_SPIN_US", "12", 1);
  const Result<Config> second = Config::from_environment();
  unsetenv("CIUIC_SPIN_US");
  const Result<Config> third = Config::from_environment();
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_EQ(first->spin_us, 11);
  EXPECT_EQ(second->spin_us, 12);
  EXPECT_EQ(third->spin_us, -1);
}

TEST(Config, AnEmptyVariableIsNotSet) {
  const Result<Config> config = read({"CIUIC_TIMEOUT_MS="});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->timeout_ms, kDefaultTimeoutMs);
  setenv("CIUIC_TEST_EMPTY", "", 1);
  EXPECT_EQ(environment_variable("CIUIC_TEST_EMPTY"), std::nullopt);
  setenv("CIUIC_TEST_EMPTY", "x", 1);
  EXPECT_EQ(environment_variable("CIUIC_TEST_EMPTY"), "x");
  unsetenv("CIUIC_TEST_EMPTY");
}

}  // namespace
}  // namespace ciuic
