// SPDX-License-Identifier: Apache-2.0
// store_test.cc: what every store does alike, and what only some do.

#include "ciuic/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "bootstrap/exchange_fixture.h"
#include "bootstrap/file_store.h"
#include "bootstrap/memory_store.h"
#include "bootstrap/tcp_store.h"

namespace ciuic::bootstrap {
namespace {

using testing::run_threads;

const std::string kSecret(32, 'k');

std::string fresh_directory() {
  return fmt::format("{}/ciuic-test-{:016x}", std::filesystem::temp_directory_path().string(),
                     *posix::random_uint64());
}

// One kind of store, opened once for each client.
struct Kind {
  std::string name;
  std::function<std::shared_ptr<Store>()> open;
};

class AnyStore : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("memory")) {
      auto store = std::make_shared<MemoryStore>();
      open_ = [store] { return store; };
    } else if (GetParam() == std::string("file")) {
      directory_ = fresh_directory();
      open_ = [this] { return std::shared_ptr<Store>(std::move(*FileStore::open(directory_))); };
    } else {
      server_ = std::move(*TcpStoreServer::start({"127.0.0.1", 0}, kSecret));
      open_ = [this] {
        return std::shared_ptr<Store>(std::move(
            *TcpStore::connect(server_->address(), kSecret, deadline_after(now_ns(), 10'000))));
      };
    }
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  std::function<std::shared_ptr<Store>()> open_;
  std::string directory_;
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_P(AnyStore, SetAndGet) {
  auto a = open_();
  auto b = open_();
  EXPECT_TRUE(a->set("some/key", "value").ok());
  EXPECT_EQ(*b->get("some/key", 5'000), "value");
  EXPECT_TRUE(b->set("some/key", std::string("\0\n\xff", 3)).ok());
  EXPECT_EQ(*a->get("some/key", 0), std::string("\0\n\xff", 3));
  EXPECT_TRUE(a->set("empty", "").ok());
  EXPECT_EQ(*a->get("empty", 0), "");
  EXPECT_TRUE(a->set("large", std::string(64 * 1024, 'x')).ok());
  EXPECT_EQ(b->get("large", 5'000)->size(), 64u * 1024);
}

TEST_P(AnyStore, AbsentKeyIsNamed) {
  auto store = open_();
  for (const int64_t timeout_ms : {0, 30}) {
    Result<std::string> value = store->get("no/such", timeout_ms);
    ASSERT_FALSE(value.ok());
    EXPECT_EQ(value.status().code(), StatusCode::kTimeout);
    EXPECT_THAT(value.status().message(), ::testing::HasSubstr("no/such"));
  }
}

TEST_P(AnyStore, GetWaitsForSet) {
  // Many times: the value also comes between two looks of the one who waits.
  for (int round = 0; round < 50; ++round) {
    const std::string key = "late" + std::to_string(round);
    run_threads(2, [&](int i) {
      auto store = open_();
      if (i == 0) {
        Result<std::string> value = store->get(key, 20'000);
        ASSERT_TRUE(value.ok()) << value.status().message();
        EXPECT_EQ(*value, "here");
      } else {
        EXPECT_TRUE(store->set(key, "here").ok());
      }
    });
  }
}

TEST_P(AnyStore, AddIsAtomic) {
  run_threads(4, [&](int) {
    auto store = open_();
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(store->add("count", 1).ok());
  });
  auto store = open_();
  EXPECT_EQ(*store->add("count", 0), 200);
  EXPECT_EQ(*store->add("count", -300), -100);
  EXPECT_EQ(*store->get("count", 0), "-100");
}

TEST_P(AnyStore, BadInputIsRefused) {
  auto store = open_();
  for (const std::string& key : {std::string(), std::string("a b"), std::string("a\n"),
                                 std::string(1000, 'k'), std::string("\xc3\xa9")}) {
    EXPECT_EQ(store->set(key, "").code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store->get(key, 0).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store->add(key, 1).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(store->set("k", std::string(64 * 1024 + 1, 'x')).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(store->set("text", "no number").ok());
  EXPECT_EQ(store->add("text", 1).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(store->add("big", INT64_MAX).ok());
  EXPECT_EQ(store->add("big", 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*store->add("big", 0), INT64_MAX);
}

TEST_P(AnyStore, EraseForgets) {
  auto store = open_();
  ASSERT_TRUE(store->set("key", "value").ok());
  auto* erasable = dynamic_cast<Erasable*>(store.get());
  ASSERT_NE(erasable, nullptr);
  erasable->erase("key");
  erasable->erase("never/was");
  EXPECT_FALSE(store->get("key", 0).ok());
}

INSTANTIATE_TEST_SUITE_P(Kinds, AnyStore, ::testing::Values("memory", "file", "tcp"));

TEST(FileStore, KeysNameNoPaths) {
  const std::string directory = fresh_directory();
  auto store = std::move(*FileStore::open(directory));
  for (const char* key : {"../escape", "/etc/passwd", ".lock", "..", "a%2fb"}) {
    ASSERT_TRUE(store->set(key, key).ok());
    EXPECT_EQ(*store->get(key, 0), key);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    EXPECT_EQ(entry.path().parent_path(), directory);
    struct stat facts{};
    ASSERT_EQ(::stat(entry.path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u) << entry.path();
  }
  struct stat facts{};
  ASSERT_EQ(::stat(directory.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
  std::filesystem::remove_all(directory);
}

TEST(FileStore, PlacesThatOthersMayWriteAreRefused) {
  const std::string directory = fresh_directory();
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(directory.c_str(), 0777), 0);
  EXPECT_EQ(FileStore::open(directory).status().code(), StatusCode::kPermission);
  std::filesystem::remove_all(directory);
  EXPECT_EQ(FileStore::open("relative").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FileStore::open("/proc/self/stat").status().code(), StatusCode::kInvalidArgument);
}

TEST(TcpStoreServer, ShortSecretIsRefused) {
  EXPECT_EQ(TcpStoreServer::start({"127.0.0.1", 0}, "short").status().code(),
            StatusCode::kInvalidArgument);
}

TEST(TcpStore, NobodyThere) {
  posix::Address address;
  {
    auto server = std::move(*TcpStoreServer::start({"127.0.0.1", 0}, kSecret));
    address = server->address();
  }
  Result<std::unique_ptr<TcpStore>> store =
      TcpStore::connect(address, kSecret, deadline_after(now_ns(), 100));
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(store.status().message(), ::testing::HasSubstr(address.format()));
}

TEST(OpenStore, FormsAreListed) {
  for (const char* url : {"", "redis://x", "/tmp", "file:", "tcp:"}) {
    Result<std::unique_ptr<Store>> store = open_store(url, 100);
    ASSERT_FALSE(store.ok()) << url;
    EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(store.status().message(), ::testing::HasSubstr("file:///directory"));
  }
  EXPECT_THAT(open_store("tcp://nohost", 100).status().message(),
              ::testing::HasSubstr("the store tcp://nohost: \"nohost\" is no address: no port"));
  const std::string directory = fresh_directory();
  Result<std::unique_ptr<Store>> store = open_store("file://" + directory, 100);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->name(), "file://" + directory);
  EXPECT_TRUE((*store)->is_private());
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace ciuic::bootstrap
