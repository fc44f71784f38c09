// SPDX-License-Identifier: Apache-2.0
// moves.cc: the operations that move bytes.
//
// Even forms are MPI's call of the same name. Of the uneven ones only all_gather_v is, since in the
// others no rank knows all counts: whether they fit into MPI's ints could not be decided alike.
// They are MPI_Ialltoallw with a type for each block, at any size.

#include "backend/mpi/operation.h"

namespace ciuic::backend {

namespace {

using Counts = std::vector<int64_t>;  // by rank

class Move {
 public:
  Move(const MpiCommunicator& communicator, MpiOperation* operation)
      : communicator_(communicator),
        mpi_(communicator.library->functions),
        constants_(communicator.library->constants),
        operation_(*operation),
        call_(operation->call),
        element_(static_cast<int64_t>(size_of(operation->request.dtype))),
        input_(static_cast<const std::byte*>(operation->call.input.data)),
        output_(static_cast<std::byte*>(operation->call.output.data)) {}

  int issue();

 private:
  int even();
  int uneven();
  int all_gather_v();
  int exchange(const Counts& given, bool is_one_input, const Counts& taken, bool in_its_place);
  int add_side(const Counts& counts, bool is_one_block);
  int message();
  int block(int64_t bytes, MpiExtent* extent) {
    int displacement = 0;
    return communicator_.types->block(0, bytes, &operation_.types, extent, &displacement);
  }

  // Whether `part` is where rank `rank`'s block of `whole` begins.
  bool is_part(const std::byte* part, const std::byte* whole, const Counts& counts,
               int rank) const {
    int64_t begin = 0;
    for (int each = 0; each < rank; ++each) begin += counts[static_cast<size_t>(each)];
    return part != nullptr && part == whole + begin * element_;
  }
  Counts nothing() const { return Counts(static_cast<size_t>(communicator_.size), 0); }
  Counts only(int rank, int64_t count) const {
    Counts counts = nothing();
    counts[static_cast<size_t>(rank)] = count;
    return counts;
  }

  const MpiCommunicator& communicator_;
  const mpi::Functions& mpi_;
  const mpi::Constants& constants_;
  MpiOperation& operation_;
  const Call& call_;
  const int64_t element_;
  const std::byte* input_;
  std::byte* output_;
};

int Move::even() {
  const int64_t bytes = operation_.request.count * element_;
  const int root = call_.root;
  const bool is_root = communicator_.rank == root;
  const auto own_block = static_cast<int64_t>(communicator_.rank) * bytes;
  MpiExtent extent;
  const int code = block(bytes, &extent);
  if (code != mpi::kSuccess) return code;
  const int count = extent.count;
  const mpi::Handle type = extent.type;
  const mpi::Handle comm = communicator_.handle;
  mpi::Handle* request = operation_.next_request();
  const bool input_is_in_output = input_ != nullptr && input_ == output_ + own_block;
  const bool output_is_in_input = output_ != nullptr && output_ == input_ + own_block;
  switch (call_.operation) {
    case Operation::kBroadcast: return mpi_.ibcast(output_, count, type, root, comm, request);
    case Operation::kAllGather:
      return mpi_.iallgather(input_is_in_output ? constants_.in_place : input_, count, type,
                             output_, count, type, comm, request);
    case Operation::kGather:
      return mpi_.igather(is_root && input_is_in_output ? constants_.in_place : input_, count, type,
                          output_, count, type, root, comm, request);
    case Operation::kScatter:
      return mpi_.iscatter(input_, count, type,
                           is_root && output_is_in_input ? constants_.in_place : output_, count,
                           type, root, comm, request);
    case Operation::kAllToAll:
      return mpi_.ialltoall(input_, count, type, output_, count, type, comm, request);
    default: return mpi_.ibarrier(comm, request);
  }
}

int Move::all_gather_v() {
  const Counts& counts = call_.output_counts;
  std::vector<int>& numbers = operation_.numbers;
  int64_t begin = 0;
  for (const int64_t count : counts) numbers.push_back(static_cast<int>(count * element_));
  for (const int64_t count : counts) {
    numbers.push_back(static_cast<int>(begin));
    begin += count * element_;
  }
  const bool in_its_place = is_part(input_, output_, counts, communicator_.rank);
  return mpi_.iallgatherv(in_its_place ? constants_.in_place : input_,
                          numbers[static_cast<size_t>(communicator_.rank)], constants_.byte,
                          output_, numbers.data(), numbers.data() + counts.size(), constants_.byte,
                          communicator_.handle, operation_.next_request());
}

// Appends counts, then displacements, and types, one of each for each rank.
int Move::add_side(const Counts& counts, bool is_one_block) {
  std::vector<int> displacements;
  std::vector<mpi::Handle> types;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    MpiExtent extent;
    int displacement = 0;
    const int code = communicator_.types->block(begin, count * element_, &operation_.types, &extent,
                                                &displacement);
    if (code != mpi::kSuccess) return code;
    operation_.numbers.push_back(extent.count);
    displacements.push_back(displacement);
    types.push_back(extent.type);
    if (!is_one_block) begin += count * element_;
  }
  operation_.numbers.insert(operation_.numbers.end(), displacements.begin(), displacements.end());
  const std::vector<std::byte> packed = mpi::pack_handles(constants_, types);
  operation_.packed_types.insert(operation_.packed_types.end(), packed.begin(), packed.end());
  return mpi::kSuccess;
}

// `is_one_input`: all ranks get the same. `in_its_place`: what this rank has for itself is where it
// belongs, and is not copied.
int Move::exchange(const Counts& given, bool is_one_input, const Counts& taken, bool in_its_place) {
  int code = add_side(given, is_one_input);
  const size_t types_of_output = operation_.packed_types.size();
  if (code == mpi::kSuccess) code = add_side(taken, false);
  if (code != mpi::kSuccess) return code;
  int* numbers = operation_.numbers.data();
  const int size = communicator_.size;
  const int rank = communicator_.rank;
  if (in_its_place) numbers[rank] = numbers[2 * size + rank] = 0;
  // Open MPI takes two buffers that begin at one address for MPI_IN_PLACE.
  const std::byte* input = input_;
  if (input == output_) {
    --input;
    for (int i = size; i < 2 * size; ++i) ++numbers[i];
  }
  const std::byte* types = operation_.packed_types.data();
  return mpi_.ialltoallw(input, numbers, numbers + size, types, output_, numbers + 2 * size,
                         numbers + 3 * size, types + types_of_output, communicator_.handle,
                         operation_.next_request());
}

int Move::uneven() {
  const int rank = communicator_.rank;
  const bool is_root = rank == call_.root;
  switch (call_.operation) {
    case Operation::kAllGather: {
      if (call_.output.count * element_ <= constants_.most_count) return all_gather_v();
      const Counts& counts = call_.output_counts;
      const Counts given(counts.size(), counts[static_cast<size_t>(rank)]);
      return exchange(given, true, counts, is_part(input_, output_, counts, rank));
    }
    case Operation::kGather: {
      const Counts given = only(call_.root, call_.input.count);
      if (!is_root) return exchange(given, false, nothing(), false);
      const Counts& counts = call_.output_counts;
      return exchange(given, false, counts, is_part(input_, output_, counts, rank));
    }
    case Operation::kScatter: {
      const Counts taken = only(call_.root, call_.output.count);
      if (!is_root) return exchange(nothing(), false, taken, false);
      const Counts& counts = call_.input_counts;
      return exchange(counts, false, taken, is_part(output_, input_, counts, rank));
    }
    default: return exchange(call_.input_counts, false, call_.output_counts, false);
  }
}

int Move::message() {
  MpiExtent& extent = operation_.expected;
  const int code = block(operation_.request.count * element_, &extent);
  if (code != mpi::kSuccess) return code;
  mpi::Handle* request = operation_.next_request();
  if (call_.operation == Operation::kSend) {
    return mpi_.isend(input_, extent.count, extent.type, call_.peer, call_.tag,
                      communicator_.handle, request);
  }
  const int source = call_.peer == kAnySource ? constants_.any_source : call_.peer;
  const int tag = call_.tag == kAnyTag ? constants_.any_tag : call_.tag;
  return mpi_.irecv(output_, extent.count, extent.type, source, tag, communicator_.handle, request);
}

int Move::issue() {
  operation_.is_issued = true;
  int code = mpi::kSuccess;
  if (operation_.is_message()) {
    code = message();
  } else {
    code = call_.uneven ? uneven() : even();
  }
  if (code != mpi::kSuccess) operation_.requests.clear();
  return code;
}

}  // namespace

int issue_move(const MpiCommunicator& communicator, MpiOperation* operation) {
  return Move(communicator, operation).issue();
}

}  // namespace ciuic::backend
