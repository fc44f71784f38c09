// SPDX-License-Identifier: Apache-2.0
// mutants_test.cc: plants faults in plans that are right, and in the model of flow control, and
// requires that each is found. A prover that accepts a mutant proves nothing.

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "plan/plan_cases.h"
#include "plan/sequence_model.h"

namespace ciuic::plan {
namespace {

struct Mutant {
  std::string fault;
  std::vector<Plan> plans;
};

class Mutants {
 public:
  explicit Mutants(const PlanCase& plan_case) : plans_(plan_case.plans()) {}

  // One mutant for each step of each plan that `change` can be done to; it says whether it was.
  // Orders and streams are worked out anew.
  void each_step(const char* fault,
                 const std::function<bool(std::vector<Plan>&, int, int)>& change) {
    each(fault, /*finish=*/true, change);
  }

  // The same, where what finish() has filled in is the thing to change.
  void each_finished_step(const char* fault,
                          const std::function<bool(std::vector<Plan>&, int, int)>& change) {
    each(fault, /*finish=*/false, change);
  }

  // One mutant for each plan.
  void each_plan(const char* fault, const std::function<bool(Plan*, int)>& change) {
    for (int rank = 0; rank < static_cast<int>(plans_.size()); ++rank) {
      std::vector<Plan> plans = plans_;
      if (!change(&plans[rank], rank)) continue;
      plans[rank].finish();
      all_.push_back({std::string(fault) + " at rank " + std::to_string(rank), std::move(plans)});
    }
  }

  const std::vector<Mutant>& all() const { return all_; }

 private:
  void each(const char* fault, bool finish,
            const std::function<bool(std::vector<Plan>&, int, int)>& change) {
    for (int rank = 0; rank < static_cast<int>(plans_.size()); ++rank) {
      for (int step = 0; step < static_cast<int>(plans_[rank].steps.size()); ++step) {
        std::vector<Plan> plans = plans_;
        if (!change(plans, rank, step)) continue;
        for (Plan& plan : plans) {
          if (finish) plan.finish();
        }
        all_.push_back({std::string(fault) + " at rank " + std::to_string(rank) + " step " +
                            std::to_string(step),
                        std::move(plans)});
      }
    }
  }

  std::vector<Plan> plans_;
  std::vector<Mutant> all_;
};

bool next_block(const Plan& plan, BlockRange* range) {
  const int blocks = plan.partitions[static_cast<int>(range->space)].blocks;
  if (range->count == 0 || blocks <= range->count) return false;
  range->first = (range->first + 1) % (blocks - range->count + 1);
  return true;
}

void plant_block_faults(Mutants* mutants) {
  mutants->each_step("wrong source block", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    return step.kind != StepKind::kReceive && next_block(plans[rank], &step.source);
  });
  mutants->each_step("wrong target block", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    return step.kind != StepKind::kSend && next_block(plans[rank], &step.target);
  });
  mutants->each_step("block out of bounds", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    BlockRange& range = step.kind == StepKind::kReceive ? step.target : step.source;
    range.first += plans[rank].partitions[static_cast<int>(range.space)].blocks;
    return range.count > 0;
  });
  mutants->each_step("input written", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    if (step.kind == StepKind::kSend || step.target.space != Space::kOutput) return false;
    step.target.space = Space::kInput;
    return true;
  });
}

void plant_contribution_faults(Mutants* mutants) {
  mutants->each_step("contribution dropped: fold becomes receive",
                     [](auto& plans, int rank, int number) {
                       Step& step = plans[rank].steps[number];
                       if (step.kind != StepKind::kReduce || step.peers.size() != 1) return false;
                       step.kind = StepKind::kReceive;
                       step.source = nothing();
                       return true;
                     });
  mutants->each_step("contribution doubled: receive becomes fold",
                     [](auto& plans, int rank, int number) {
                       Step& step = plans[rank].steps[number];
                       if (step.kind != StepKind::kReceive || step.target.count == 0) return false;
                       step.kind = StepKind::kReduce;
                       step.source = step.target;
                       return true;
                     });
  mutants->each_step("message doubled", [](auto& plans, int rank, int number) {
    const Step step = plans[rank].steps[number];
    if (step.kind != StepKind::kSend) return false;
    plans[rank].steps.insert(plans[rank].steps.begin() + number, step);
    for (const int peer : step.peers) {
      for (size_t there = 0; there < plans[peer].steps.size(); ++there) {
        Step receive = plans[peer].steps[there];
        receive.source = receive.target;  // what has come once is folded in again
        if (receive.kind != StepKind::kReduce || receive.lane != step.lane ||
            receive.peers != std::vector<int>{rank}) {
          continue;
        }
        plans[peer].steps.insert(plans[peer].steps.begin() + static_cast<int>(there) + 1, receive);
        break;
      }
    }
    return true;
  });
  mutants->each_step("final forgotten", [](auto& plans, int rank, int number) {
    return std::exchange(plans[rank].steps[number].final, false);
  });
  mutants->each_step("final too early", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    return step.kind == StepKind::kReduce && !std::exchange(step.final, true);
  });
  mutants->each_step("received_raw wrong", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    step.received_raw = !step.received_raw;
    return step.kind == StepKind::kReduce;
  });
}

void plant_message_faults(Mutants* mutants) {
  mutants->each_step("step left out", [](auto& plans, int rank, int number) {
    std::vector<Step>& steps = plans[rank].steps;
    steps.erase(steps.begin() + number);
    return true;
  });
  mutants->each_step("wrong peer", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    const int size = static_cast<int>(plans.size());
    if (step.peers.size() != 1) return false;
    int& peer = step.peers[0];
    do peer = (peer + 1) % size;
    while (peer == rank);
    return size > 2;
  });
  mutants->each_step("peer left out", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    if (step.peers.size() < 2) return false;
    step.peers.pop_back();
    step.own_place = std::min(step.own_place, static_cast<int>(step.peers.size()));
    return true;
  });
  mutants->each_step("wrong lane", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    step.lane += 1;
    return !step.peers.empty();
  });
  mutants->each_step("order of two sends reversed", [](auto& plans, int rank, int number) {
    std::vector<Step>& steps = plans[rank].steps;
    const Step& first = steps[number];
    if (first.kind != StepKind::kSend) return false;
    for (size_t later = number + 1; later < steps.size(); ++later) {
      const Step& second = steps[later];
      if (second.kind != StepKind::kSend || second.lane != first.lane ||
          second.peers != first.peers || second.source == first.source) {
        continue;
      }
      std::swap(steps[number].source, steps[later].source);
      return true;
    }
    return false;
  });
}

// Whether a step comes after another one as it should, by way of others, without a dependency of
// its own on it. `whole`: a dependency on the way to here was.
bool comes_after(const Plan& plan, int step, const Dependency& wanted, bool whole) {
  for (const Dependency& dependency : plan.steps[step].after) {
    const bool is_whole = whole || dependency.whole;
    if (dependency.step == wanted.step && (is_whole || !wanted.whole)) return true;
    if (dependency.step > wanted.step && comes_after(plan, dependency.step, wanted, is_whole)) {
      return true;
    }
  }
  return false;
}

void plant_order_faults(Mutants* mutants) {
  mutants->each_finished_step("dependency missing", [](auto& plans, int rank, int number) {
    std::vector<Dependency>& after = plans[rank].steps[number].after;
    if (after.empty()) return false;
    const Dependency missing = after.back();
    after.pop_back();
    return !comes_after(plans[rank], number, missing, /*whole=*/false);
  });
  mutants->each_finished_step("whole dependency made chunkwise",
                              [](auto& plans, int rank, int number) {
                                for (Dependency& dependency : plans[rank].steps[number].after) {
                                  if (std::exchange(dependency.whole, false)) return true;
                                }
                                return false;
                              });
  mutants->each_finished_step("waits for a later step", [](auto& plans, int rank, int number) {
    const int steps = static_cast<int>(plans[rank].steps.size());
    plans[rank].steps[number].after.push_back({steps - 1, true});
    return true;
  });
  mutants->each_finished_step("wrong position in the stream",
                              [](auto& plans, int rank, int number) {
                                std::vector<StreamPlace>& places = plans[rank].steps[number].places;
                                if (places.empty()) return false;
                                ++places.back().position;
                                return true;
                              });
}

// What says how blocks lie in memory, and whose they are.
void plant_space_faults(const PlanCase& plan_case, Mutants* mutants) {
  const int size = plan_case.layout.size();
  const Claim claim = plan_case.claim();
  const auto shape = [=](int rank) { return shape_of(claim.operation, size, rank, claim.root); };
  for (const int by : {-1, 1}) {
    mutants->each_plan("wrong input_offset", [&](Plan* plan, int rank) {
      plan->input_offset += by;
      return shape(rank).input > 0 && shape(rank).output > 0 && allows_in_place(claim.operation);
    });
  }
  mutants->each_plan("never in place", [&](Plan* plan, int rank) {
    plan->allows_in_place = false;
    return shape(rank).input > 0 && shape(rank).output > 0 && allows_in_place(claim.operation);
  });
  mutants->each_plan("a block less of input", [&](Plan* plan, int rank) {
    return shape(rank).input > 0 && --plan->partitions[0].blocks >= 0 && shape(rank).input > 1;
  });
  if (!claim.uneven) return;
  mutants->each_plan("another rank's input", [&](Plan* plan, int rank) {
    plan->partitions[0].first = (plan->partitions[0].first + 1) % size;
    return shape(rank).input > 0;
  });
  mutants->each_plan("another rank's output", [&](Plan* plan, int rank) {
    plan->partitions[1].first = (plan->partitions[1].first + 1) % size;
    return shape(rank).output > 0;
  });
  mutants->each_plan("another rank's scratch", [&](Plan* plan, int) {
    std::vector<int>& owners = plan->partitions[2].owners;
    for (int& owner : owners) owner = (owner + 1) % size;
    return !owners.empty();
  });
}

// Operand order matters where several ranks add up the same block.
void plant_operand_faults(Mutants* mutants) {
  mutants->each_step("operands swapped", [](auto& plans, int rank, int number) {
    Step& step = plans[rank].steps[number];
    if (step.kind != StepKind::kReduce) return false;
    const int last = static_cast<int>(step.peers.size());
    step.own_place = step.own_place == last ? 0 : last;
    return true;
  });
}

struct Tally {
  int planted = 0;
  int caught = 0;

  void add(const PlanCase& plan_case, const std::string& fault, const Status& status) {
    ++planted;
    caught += status.ok() ? 0 : 1;
    EXPECT_FALSE(status.ok()) << plan_case.text() << ": " << fault;
  }
  void print(const char* what) const {
    std::printf("mutants caught %d of %d (%s)\n", caught, planted, what);
  }
};

void prove_mutants(const PlanCase& plan_case, Tally* tally) {
  Mutants mutants(plan_case);
  // The blocks of a barrier have no bytes; only who comes after whom can be wrong.
  if (plan_case.operation != Operation::kBarrier) {
    plant_block_faults(&mutants);
    plant_contribution_faults(&mutants);
    plant_space_faults(plan_case, &mutants);
  }
  plant_message_faults(&mutants);
  plant_order_faults(&mutants);
  const bool several_add = plan_case.algorithm == Algorithm::kOneShot ||
                           plan_case.algorithm == Algorithm::kRecursiveDoubling;
  if (several_add) plant_operand_faults(&mutants);
  for (const Mutant& mutant : mutants.all()) {
    tally->add(plan_case, mutant.fault, prove(plan_case.claim(), mutant.plans));
  }
}

TEST(MutantsTest, EveryMutantOfAPlanIsCaught) {
  Tally tally;
  for (const char* text : {"5", "3+2", "2x2", "0,1,0,1,0"}) {
    const Layout layout = *Layout::parse(text);
    for (int number = 0; number < kOperations; ++number) {
      const Operation operation = static_cast<Operation>(number);
      for (const Algorithm algorithm : algorithms_for(operation)) {
        prove_mutants({operation, algorithm, layout, has_root(operation) ? 1 : 0}, &tally);
      }
    }
  }
  EXPECT_GT(tally.planted, 10000);
  tally.print("plans");
}

// All ranks agree on the expression, but it has the higher ranks to the left.
TEST(MutantsTest, OperandsSwappedOnAllRanks) {
  Tally tally;
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kRecursiveDoubling}) {
    const PlanCase plan_case{Operation::kAllReduce, algorithm, Layout::one_host(4), 0};
    std::vector<Plan> plans = plan_case.plans();
    for (Plan& plan : plans) {
      for (Step& step : plan.steps) {
        if (step.kind != StepKind::kReduce) continue;
        if (step.peers.size() == 1) step.own_place = 1 - step.own_place;
      }
    }
    // Four operands cannot all be reversed, but rank 0's can go last on every rank alone.
    if (algorithm == Algorithm::kOneShot) plans[0].steps[1].own_place = 3;
    tally.add(plan_case, "operands swapped on all ranks", prove(plan_case.claim(), plans));
  }
  tally.print("operands");
}

// Folding into the very place that peers still read needs a buffer between ranks, in place.
TEST(MutantsTest, FoldIntoWhatIsBeingSent) {
  const PlanCase plan_case{Operation::kAllReduce, Algorithm::kOneShot, Layout::one_host(3), 0};
  std::vector<Plan> plans = plan_case.plans();
  for (Plan& plan : plans) {
    plan.steps.pop_back();
    plan.steps.back().target = output(0);
    plan.finish();
  }
  const Status status = prove(plan_case.claim(), plans);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("deadlock"), std::string::npos) << status.message();
}

// Each round of the barrier must wait for all rounds before it, not only for the last message.
TEST(MutantsTest, BarrierThatForgetsEarlierRounds) {
  const PlanCase plan_case{Operation::kBarrier, Algorithm::kDissemination, Layout::one_host(8), 0};
  std::vector<Plan> plans = plan_case.plans();
  for (Step& step : plans[3].steps) {
    if (step.kind != StepKind::kReduce) continue;
    step.kind = StepKind::kReceive;
    step.source = nothing();
  }
  plans[3].finish();
  const Status status = prove(plan_case.claim(), plans);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("has begun"), std::string::npos) << status.message();
}

// The faults of flow control: the right plans under a model that has one of them.
TEST(MutantsTest, EveryDefectOfTheModelIsFound) {
  struct Row {
    Defect defect;
    const char* name;
    Operation operation;
    Algorithm algorithm;
    const char* layout;
    const char* message;
  };
  const Row rows[] = {
      {Defect::kSlotReusedEarly, "slot reused early", Operation::kAllReduce, Algorithm::kTwoShot,
       "4", "written again"},
      {Defect::kSlotReusedEarly, "slot reused early", Operation::kBroadcast, Algorithm::kDirect,
       "4", "written again"},
      {Defect::kSlotNeverReleased, "slot never released", Operation::kAllGather, Algorithm::kDirect,
       "3", "deadlock"},
      {Defect::kCreditLost, "credit lost", Operation::kAllReduce, Algorithm::kRing, "3",
       "deadlock"},
      {Defect::kWindowIgnored, "window ignored", Operation::kBroadcast, Algorithm::kBinomial, "4x1",
       "than it gave credits"},
      {Defect::kAnnouncementLost, "announcement lost", Operation::kBroadcast, Algorithm::kDirect,
       "3x1", "deadlock"},
      {Defect::kCompletionLost, "completion lost", Operation::kBroadcast, Algorithm::kBinomial, "4",
       "deadlock"},
      {Defect::kEndsBeforeSent, "ends before it is sent", Operation::kReduce, Algorithm::kDirect,
       "3x1", "overwritten"},
      {Defect::kStreamOrderIgnored, "stream order ignored", Operation::kAllReduce,
       Algorithm::kTwoLevelRing, "2+2", "out of order"},
  };
  Tally tally;
  for (const Row& row : rows) {
    const PlanCase plan_case{row.operation, row.algorithm, *Layout::parse(row.layout), 0};
    const std::vector<Plan> plans = plan_case.plans();
    Status found;
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      SequenceSetup setup;
      setup.seed = seed;
      setup.slow_rank = 1;
      ASSERT_TRUE(run_sequence(plan_case.layout, {plans, plans, plans}, setup).ok());
      setup.defect = row.defect;
      const Status status = run_sequence(plan_case.layout, {plans, plans, plans}, setup);
      if (!status.ok() && found.ok()) found = status;
    }
    tally.add(plan_case, row.name, found);
    EXPECT_NE(found.message().find(row.message), std::string::npos)
        << row.name << ": " << found.message();
  }
  tally.print("flow control");
}

}  // namespace
}  // namespace ciuic::plan
