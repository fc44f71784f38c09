// SPDX-License-Identifier: Apache-2.0
// rank_processes.cc: fork, pipes, and one operation on floats.

#include "rank_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"

namespace ciuic::fault {

void Teller::say(const std::string& line) const {
  const std::string text = line + "\n";
  if (::write(out_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(3);
}

std::string Teller::hear() const {
  std::string line;
  char c = 0;
  while (::read(in_, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

bool Teller::has_word() const {
  pollfd fd{in_, POLLIN, 0};
  return ::poll(&fd, 1, 0) > 0;
}

RankProcesses::RankProcesses(int size, const Body& body) : children_(static_cast<size_t>(size)) {
  for (int rank = 0; rank < size; ++rank) {
    int from_child[2];
    int to_child[2];
    if (::pipe(from_child) != 0 || ::pipe(to_child) != 0) std::abort();
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (const Child& other : children_) {
        if (other.pid < 0) continue;
        ::close(other.in);
        ::close(other.out);
      }
      ::close(from_child[0]);
      ::close(to_child[1]);
      body(rank, Teller(to_child[0], from_child[1]));
      ::_exit(0);
    }
    ::close(from_child[1]);
    ::close(to_child[0]);
    children_[static_cast<size_t>(rank)] = {pid, from_child[0], to_child[1], ""};
  }
}

RankProcesses::~RankProcesses() {
  for (Child& child : children_) {
    if (child.pid > 0) {
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
    ::close(child.in);
    ::close(child.out);
  }
}

void RankProcesses::say(int rank, const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t sent =
      ::write(children_[static_cast<size_t>(rank)].out, text.data(), text.size());
}

std::string RankProcesses::hear(int rank) {
  Child& child = children_[static_cast<size_t>(rank)];
  while (true) {
    const size_t end = child.read.find('\n');
    if (end != std::string::npos) {
      std::string line = child.read.substr(0, end);
      child.read.erase(0, end + 1);
      return line;
    }
    char buffer[4096];
    const ssize_t count = ::read(child.in, buffer, sizeof buffer);
    if (count <= 0) return "";
    child.read.append(buffer, static_cast<size_t>(count));
  }
}

void RankProcesses::signal(int rank, int number) {
  ::kill(children_[static_cast<size_t>(rank)].pid, number);
}

int RankProcesses::exit_status(int rank) {
  int status = 0;
  pid_t& pid = children_[static_cast<size_t>(rank)].pid;
  ::waitpid(pid, &status, 0);
  pid = -1;
  return status;
}

Directory::Directory() {
  std::string name = (std::filesystem::temp_directory_path() / "ciuic-fault-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

Directory::~Directory() { std::filesystem::remove_all(path_); }

std::unique_ptr<Communicator> join(const std::string& directory, int rank, int size,
                                   int64_t timeout_ms) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.timeout_ms = timeout_ms;
  auto store = open_store("file://" + directory, 60'000);
  if (!store.ok()) ::_exit(4);
  options.store = std::move(*store);
  auto communicator = Communicator::create(options);
  if (!communicator.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", rank, communicator.status().message().c_str());
    ::_exit(5);
  }
  return std::move(*communicator);
}

Status run(Communicator& communicator, const std::string& operation, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count), 1);
  std::vector<float> parts(static_cast<size_t>(count * communicator.size()));
  std::vector<float> others(parts.size());
  const auto of = [](std::vector<float>& memory) {
    return MutableBuffer{
        memory.data(), static_cast<int64_t>(memory.size()), DataType::kFloat32, {}};
  };
  const MutableBuffer buffer = of(values);
  const int root = 1;
  const int size = communicator.size();
  const int rank = communicator.rank();
  Result<Work> work = Status(StatusCode::kInvalidArgument, "no operation " + operation);
  if (operation == "all_reduce") {
    work = communicator.all_reduce(buffer, buffer, ReduceOp::kSum);
  } else if (operation == "reduce") {
    work = communicator.reduce(buffer, {parts.data(), count, DataType::kFloat32, {}},
                               ReduceOp::kSum, root);
  } else if (operation == "broadcast") {
    work = communicator.broadcast(buffer, root);
  } else if (operation == "all_gather") {
    work = communicator.all_gather(buffer, of(parts));
  } else if (operation == "reduce_scatter") {
    work = communicator.reduce_scatter(of(parts), buffer, ReduceOp::kSum);
  } else if (operation == "all_to_all") {
    work = communicator.all_to_all(of(parts), of(others));
  } else if (operation == "gather") {
    work = communicator.gather(buffer, of(parts), root);
  } else if (operation == "scatter") {
    work = communicator.scatter(of(parts), buffer, root);
  } else if (operation == "ring") {
    std::vector<float> received(values.size());
    const std::array calls{Call::send(buffer, (rank + 1) % size),
                           Call::recv(of(received), (rank + size - 1) % size)};
    work = communicator.submit(calls);
    return work.ok() ? work->wait() : work.status();  // before `received` goes
  } else if (operation == "barrier") {
    work = communicator.barrier();
  }
  return work.ok() ? work->wait() : work.status();
}

int64_t milliseconds() { return now_ns() / 1'000'000; }

}  // namespace ciuic::fault
