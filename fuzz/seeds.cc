// SPDX-License-Identifier: Apache-2.0
// seeds.cc: writes what honest peers say, by the real encoders, as the first inputs of each target.
//
// fuzz_seeds DIRECTORY makes DIRECTORY/<target>/<number>.

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "bootstrap/bytes.h"
#include "bootstrap/invitation.h"
#include "bootstrap/messages.h"
#include "bootstrap/tcp_store_protocol.h"
#include "plan/plan_json.h"
#include "security/handshake.h"
#include "tuner/tuning_table.h"
#include "wire/header.h"

using namespace ciuic;
using bootstrap::ByteWriter;

namespace {

std::filesystem::path directory;

void seed(const std::string& target, std::string_view bytes) {
  const auto folder = directory / target;
  std::filesystem::create_directories(folder);
  const auto count = std::distance(std::filesystem::directory_iterator(folder), {});
  std::ofstream(folder / std::to_string(count), std::ios::binary) << bytes;
}

// As Input::text() reads it.
std::string text(std::string_view bytes) {
  return std::string(1, static_cast<char>(bytes.size())) + std::string(bytes);
}

std::string frame(std::string_view bytes) { return ByteWriter().text(bytes).take(); }

std::string u16(size_t value) {
  return {static_cast<char>(value & 0xff), static_cast<char>(value >> 8)};
}

std::string header_bytes(wire::MessageType type, uint32_t payload_bytes) {
  wire::Header header;
  header.type = type;
  header.epoch = 3;
  header.group = 7;
  header.payload_bytes = payload_bytes;
  header.message_bytes = payload_bytes;
  std::array<std::byte, wire::kHeaderBytes> bytes;
  wire::encode(header, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bootstrap::Card card(int rank, int size) {
  bootstrap::Card card;
  card.rank = rank;
  card.size = size;
  card.uid = 0x1122334455667788;
  card.pid = 4711;
  card.host_name = "host";
  card.machine_id = "machine";
  card.host_id = "machine";
  card.unix_name = "ciuic-00112233445566778899aabbccddeeff";
  card.addresses = {{"10.0.0.1", 4711}, {"fd00::1", 4712}};
  card.loopback = {{"127.0.0.1", 4713}};
  card.transports = 3;
  card.library_version = "0.1.0";
  card.wire_version = wire::kVersion;
  card.agreed = {{"buffer_size", "67108864"}, {"CIUIC_TRANSPORT", "auto"}};
  return card;
}

void headers() {
  for (int type = 1; type <= 6; ++type) {
    const bool carries = type == 1 || type == 5;
    const std::string bytes = header_bytes(static_cast<wire::MessageType>(type), carries ? 100 : 0);
    seed("header", bytes);
    seed("tcp_receiver", std::string("\0", 1) + u16(bytes.size()) + bytes + "\x01" + u16(100) +
                             "\x02\x03" + std::string("\x00\x10\x27", 3) + "\x01" + u16(10'000));
  }
}

void join() {
  const bootstrap::Card mine = card(1, 3);
  seed("card", bootstrap::encode(mine));
  bootstrap::Roll roll;
  for (int rank = 0; rank < 3; ++rank) roll.cards.push_back(card(rank, 3));
  roll.epoch = 3;
  roll.tuning = tuner::TuningTable().serialize();
  const Status failure(StatusCode::kTimeout, "rank 2 did not come");
  const std::vector<std::string> frames = {
      bootstrap::encode_card_frame(1000, mine),
      bootstrap::encode_failure(failure),
      bootstrap::encode_roll(roll),
      bootstrap::encode_round(1, std::string("some bytes")),
      bootstrap::encode_round(1, failure),
      bootstrap::encode_result({1, {}, {"a", "bb", "ccc"}}),
      bootstrap::encode_result({1, failure, {}}),
  };
  for (const std::string& bytes : frames) seed("join_messages", bytes);
  const std::string row = ByteWriter().u32(1).u32(1).text("10.0.0.1").take();
  std::string rounds;
  std::string results;
  for (uint32_t round = 1; round <= 4; ++round) {
    rounds += frame(bootstrap::encode_round(round, round == 1 ? row : std::string("mine")));
    results += frame(bootstrap::encode_result({round, {}, {row, row, row}}));
  }
  seed("assembly", std::string("\0\0", 2) + u16(rounds.size()) + rounds + rounds);
  for (const char flag : {'\0', '\1'}) seed("assembly", std::string{'\1', flag} + results);
  bootstrap::Invitation invitation = *bootstrap::new_invitation();
  invitation.epoch = 1;
  invitation.addresses = mine.addresses;
  invitation.loopback = mine.loopback;
  for (const char* counter : {"1", "2", "-1", "9223372036854775807"}) {
    seed("invitation", text(counter) + bootstrap::encode(invitation));
  }
  const std::string said = "\x08" + frame("word").substr(0, 8) + "\xff" + frame("another word");
  for (const char* flags : {"\x01\x01", "\x02\x01", "\x01\x02", "\x02\x02"}) {
    seed("channel", flags + said);
  }
}

void handshakes() {
  security::Identity identity;
  identity.job = "job";
  const std::string head = text("job") + std::string("\3\7\1\1\2", 5);
  auto connecting = security::Handshake::connecting(std::string(32, 's'), identity);
  const std::string hello = connecting.to_send();
  seed("handshake", std::string("\0", 1) + head + hello + std::string(32, 'm'));
  seed("handshake", "\1" + head + hello + std::string(32, 'm'));
  seed("handshake", "\2" + head + std::string("\1\0\0\0", 4));
  seed("handshake", "\2" + head + std::string("\1\1\20\1\0\0", 6));
  seed("handshake", "\2" + head + std::string("\0\0\0\0", 4));
}

void stores() {
  using bootstrap::Request;
  const auto request = [](Request kind, std::string_view key) {
    return ByteWriter().u8(static_cast<uint8_t>(kind)).text(key);
  };
  const std::string set = request(Request::kSet, "key").text("value").take();
  const std::string get = request(Request::kGet, "key").u64(1).take();
  const std::string add = request(Request::kAdd, "number").u64(2).take();
  const std::string erase = request(Request::kErase, "key").take();
  std::string all = "\1";
  for (const std::string& each : {set, get, add, add, erase, get}) all += "\1" + text(each);
  seed("tcp_store_server", all);
  seed("tcp_store_server", std::string("\0", 1) + "GET / HTTP/1.1\r\n\r\n");
  const auto answer = [](StatusCode code, std::string_view value) {
    return frame(ByteWriter().u8(static_cast<uint8_t>(code)).text(value).take());
  };
  seed("tcp_store_client", std::string("\0\1\2\3", 4) + answer(StatusCode::kOk, "value") +
                               answer(StatusCode::kOk, "12") + answer(StatusCode::kOk, "") +
                               answer(StatusCode::kTimeout, "no key"));
  const std::string begin =
      "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
      "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\ncmd=my_kvsname kvsname=kvs_1\n";
  const std::string met = "cmd=barrier_out\n";
  const std::string got =
      "cmd=get_result rc=0 msg=success value=1\ncmd=get_result rc=0 value=6162\n";
  const std::string put = "cmd=put_result rc=0 msg=success\n";
  const std::string once = std::string(1, '\0') + u16(begin.size()) + begin;
  seed("pmi", text("ab") + once + met + got + put + put + met + met + got);
  seed("pmi", text("") + once + met + "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
  const std::string many = begin + met + "cmd=get_result rc=0 value=4096\n";
  seed("pmi", text("") + std::string(1, '\xff') + u16(many.size()) + many +
                  "cmd=get_result rc=0 value=" + std::string(1000, 'a') + "\n");
  const auto counted = [](const std::string& line) {
    const std::string digits = std::to_string(line.size());
    return std::string(6 - digits.size(), ' ') + digits + line;
  };
  const std::string begin_2 =
      "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n" +
      counted("cmd=fullinit-response;rc=0;pmi-version=2;rank=0;size=2;appnum=-1;debugged=FALSE;");
  const std::string met_2 = counted("cmd=kvs-fence-response;rc=0;");
  const std::string put_2 = counted("cmd=kvs-put-response;rc=0;");
  const std::string got_2 = counted("cmd=kvs-get-response;rc=0;found=TRUE;value=1;") +
                            counted("cmd=kvs-get-response;rc=0;found=TRUE;value=6162;");
  seed("pmi", text("a") + std::string(1, '\0') + u16(begin_2.size()) + begin_2 + met_2 + got_2 +
                  put_2 + put_2 + met_2 + met_2 + got_2);
  seed("pmi", text("a") + std::string(1, '\0') + u16(begin_2.size()) + begin_2 + met_2 +
                  counted("cmd=kvs-get-response;rc=0;found=FALSE;"));
}

void texts() {
  seed("tuning_table", tuner::TuningTable().serialize());
  for (const char* address : {"10.0.0.1:4711", "[fd00::1]:80", "[fe80::1%lo]:1", "host:0",
                              "127.0.0.1:65535", "[::]:1", "[::ffff:127.0.0.1]:9"}) {
    seed("address", address);
  }
  for (const char* layout : {"5", "4x2", "3+2", "4x2+1", "0,1,0,1", "65536"})
    seed("layout", layout);
  for (const char* settings :
       {"CIUIC_TRANSPORT=shm\nCIUIC_TIMEOUT_MS=1000\nCIUIC_BUFFER_SIZE=64M\nCIUIC_SPIN_US=-1",
        "CIUIC_SECRET=00112233445566778899aabbccddeeff\nCIUIC_STORE=tcp://host:1\nCIUIC_LOG=info",
        "CIUIC_LOG_FILE=/tmp/%h.%p\nCIUIC_HOST_ID=a\nCIUIC_SOCKET_IFNAME=eth0\nCIUIC_TLS=1",
        "CIUIC_PORT_RANGE=20000-20999\nCIUIC_ADVERTISE_ADDRESS=[fd00::1]:30000",
        "=eth0,ib,10.0.0.0/8,fd00::/64,fe80::1%eth0,^docker,lo,10.1.2.3", "[fd00::1]:30000",
        "SLURM_PROCID=3\nSLURM_STEP_NUM_TASKS=5\nSLURM_STEP_ID=0\nSLURM_LOCALID=1\n"
        "SLURM_NODEID=2\nSLURM_STEP_TASKS_PER_NODE=2(x2),1",
        "PMIX_RANK=1\nPMIX_NAMESPACE=job", "JOB_COMPLETION_INDEX=1\nWORLD_SIZE=2",
        "RANK=1\nWORLD_SIZE=2\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2", "PMI_RANK=0\nPMI_SIZE=4",
        "SLURM_PROCID=0\nSLURM_NTASKS=2\nSLURM_STEP_ID=0", "64KiB", "9007199254740992K"}) {
    seed("settings", settings);
  }
}

void plans() {
  for (int operation = 0; operation < plan::kOperations; ++operation) {
    const auto kind = static_cast<plan::Operation>(operation);
    for (const plan::Algorithm algorithm : plan::algorithms_for(kind)) {
      for (const char* layout : {"2", "1+1", "3", "2+1"}) {
        plan::PlanFile file;
        file.operation = kind;
        file.layout = *plan::Layout::parse(layout);
        for (int rank = 0; rank < file.layout.size(); ++rank) {
          file.plans.push_back(plan::make(kind, algorithm, file.layout, rank, 0));
        }
        seed("plan_file", plan::to_json(file));
      }
    }
  }
}

// Scripts of bytes that mean something everywhere: nothing honest is to be had here.
void scripts() {
  std::mt19937 random(1);
  for (const char* target : {"engine", "shm_link", "pair", "control", "trace", "tls"}) {
    for (int i = 0; i < 100; ++i) {
      std::string bytes(static_cast<size_t>(40 + i * 6), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random() % (i % 3 == 0 ? 256 : 16));
      seed(target, bytes);
    }
  }
  // A pair as it should be: each message whole, and the segment and a doorbell with the first.
  seed("pair", std::string("\1\0\2\0\4\1\1\0\0\1\1\0\0\1", 14));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: fuzz_seeds DIRECTORY\n");
    return 2;
  }
  directory = arguments[1];
  headers();
  join();
  handshakes();
  stores();
  texts();
  plans();
  scripts();
  return 0;
}
