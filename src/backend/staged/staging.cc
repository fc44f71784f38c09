// SPDX-License-Identifier: Apache-2.0
// staging.cc: pieces on their way through the host.

#include "backend/staged/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "collective/device.h"
#include "drivers/posix/limits.h"

namespace ciuic::backend {

static constexpr size_t kMostSlotBytes = size_t{4} << 20;
static constexpr size_t kLeastSlotBytes = size_t{64} << 10;
static constexpr TimeNs kSettleNs = 2'000'000'000;
static constexpr std::chrono::microseconds kSettleStep{200};
static constexpr size_t kSidesApart = 64;  // of a slot's bytes, what may lie between its two sides

// One submit().
struct Staging::Transfer {
  CopyStreams* streams = nullptr;
  engine::WorkState* arrived = nullptr;  // ends once all copies in are in their stream
  engine::WorkState* work = nullptr;     // ends with the last of them
  size_t left = 0;                       // parts that have not arrived
  Status status;                         // of the first one that failed
  std::shared_ptr<CudaEvent> ready;      // what the caller's stream had at the call
  std::shared_ptr<CudaEvent> end;        // after the last copy in; recorded before `arrived` ends
  std::array<bool, CopyStreams::kLanes> lanes{};  // that its parts use

  ~Transfer() {
    arrived->release();
    work->release();
  }
};

struct Staging::Part {
  Piece piece;
  std::byte* input = nullptr;  // of the whole call, on the device
  std::byte* output = nullptr;
  std::shared_ptr<Transfer> transfer;
  std::shared_ptr<engine::Gate> gate;  // null: it copies nothing out, and has a block of its own
  Slot* slot = nullptr;                // null: a block of its own
  size_t lane = kSlots;                // that of its slot
  PinnedBlock* block = nullptr;        // null: a straight one
  Work work;                           // of the host's backend
};

namespace {

// A stream waits for the copies in once they are in their stream.
class ArrivalOrder final : public engine::StreamOrder {
 public:
  ArrivalOrder(const cuda::Functions* cuda, int device, engine::WorkState* arrived,
               std::shared_ptr<CudaEvent> end)
      : cuda_(*cuda), device_(device), arrived_(arrived), end_(std::move(end)) {
    arrived_->retain();
  }
  ~ArrivalOrder() override { arrived_->release(); }

  // Of one that has failed the caller waits for the end: nothing is copied to its memory any more.
  Status wait_on(engine::WorkState* work, const Stream& stream, int64_t timeout_ms) override {
    if (work->done()) return work->status();  // on the device, too; may be known before the arrival
    const TimeNs deadline = timeout_ms < 0 ? kNever : deadline_after(now_ns(), timeout_ms);
    if (!ends(arrived_, deadline) || (!arrived_->status().ok() && !ends(work, deadline))) {
      return {StatusCode::kTimeout,
              fmt::format("waited {} ms; the operation has not ended and goes on", timeout_ms)};
    }
    if (!arrived_->status().ok()) return arrived_->status();
    // A null stream is the current device's, and the caller's may be another than the tensors'.
    const cuda::DeviceScope scope(cuda_, stream.device_index >= 0 ? stream.device_index : device_);
    return end_->wait_on(stream.handle);
  }

  bool has_arrived() const override { return arrived_->done(); }

 private:
  static bool ends(engine::WorkState* work, TimeNs deadline) {
    return work->done() || work->driver()->wait(work, deadline);
  }

  const cuda::Functions& cuda_;
  const int device_;  // of the tensors
  engine::WorkState* arrived_;
  std::shared_ptr<CudaEvent> end_;
};

// What a host function of CUDA's does, which may call nothing of CUDA's: it opens a gate, or ends a
// Work.
struct Notice {
  std::shared_ptr<engine::Gate> gate;
  engine::WorkState* work = nullptr;
  std::shared_ptr<PendingWorks> pending;  // where the Work is
  std::shared_ptr<engine::WorkDriver> driver;

  static void give(void* data) {
    const std::unique_ptr<Notice> notice(static_cast<Notice*>(data));
    if (notice->gate != nullptr) notice->gate->open();
    engine::WorkState* work = notice->work;
    if (work != nullptr && notice->pending->take(work)) {
      work->finish(Status());
      // The last one to let go of it destroys an event, which is a call of CUDA's.
      notice->driver->complete([work] { work->release(); });
    }
    notice->driver->wake();
  }
};

Status put(const cuda::Functions& cuda, cuda::Stream stream, std::unique_ptr<Notice> notice) {
  CIUIC_RETURN_IF_ERROR(cuda::error_of(cuda, "cudaLaunchHostFunc",
                                       cuda.launch_host_func(stream, &Notice::give, notice.get())));
  (void)notice.release();
  return {};
}

Status is_closed() { return {StatusCode::kClosed, "the communicator is closed; make a new one"}; }

}  // namespace

Staging::Staging(const Options& options)
    : options_(options),
      cuda_(*options.cuda),
      slot_bytes_(std::clamp(options.most_bytes / kSlots, kLeastSlotBytes, kMostSlotBytes)),
      driver_(options.host->driver()),
      memory_(options.cuda, kSlots * slot_bytes_) {}

Result<CopyStreams*> Staging::streams_of(int device) {
  std::unique_ptr<CopyStreams>& streams = streams_[device];
  if (streams == nullptr) {
    auto made = CopyStreams::create(&cuda_, device);
    if (!made.ok()) return made.status();
    streams = std::move(*made);
  }
  return streams.get();
}

// What the caller has put into its stream comes first: the input may still be written, and the
// output read.
Status Staging::make_ready(const Stream& stream, int device, CudaEvent* ready) {
  int capturing = 0;
  CIUIC_RETURN_IF_ERROR(cuda::error_of(cuda_, "cudaStreamIsCapturing",
                                       cuda_.stream_is_capturing(stream.handle, &capturing)));
  if (capturing != 0) {
    return {StatusCode::kUnsupported,
            "a CUDA graph is being captured in this stream, and tensors that travel by way of the "
            "host cannot be in one; call it outside of the capture. Nothing was sent."};
  }
  return ready->record(stream.handle, device);
}

// Of a call whose memory the host's backend takes where it lies: no copies, and no slot.
static Piece straight(const Call& call) {
  Piece piece;
  piece.call = collective::on_cpu(call);
  piece.is_straight = true;
  return piece;
}

Result<Work> Staging::submit(std::span<const Call> calls, const Device& device,
                             const OperationOptions& options) {
  const cuda::DeviceScope scope(cuda_, device.index);
  Pieces pieces;
  for (const Call& call : calls) {
    if (options_.host->reaches_gpu(call)) {
      pieces.emplace_back(&call, straight(call));
      continue;
    }
    for (Piece& piece : cut(call, options_.rank, options_.size, slot_bytes_ - kSidesApart)) {
      pieces.emplace_back(&call, std::move(piece));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return is_closed();
  if (!copier_.joinable()) {
    auto thread = posix::start_thread([this] { run_copier(); });
    if (!thread.ok()) return thread.status();
    copier_ = std::move(*thread);
  }
  Result<CopyStreams*> streams = streams_of(device.index);
  if (!streams.ok()) return streams.status();
  auto ready = std::make_shared<CudaEvent>(&cuda_);
  CIUIC_RETURN_IF_ERROR(make_ready(options.stream, device.index, ready.get()));
  Result<std::vector<std::shared_ptr<Part>>> parts = placed(std::move(pieces));
  if (!parts.ok()) return parts.status();
  const std::shared_ptr<Transfer> transfer = new_transfer(*streams, parts->size());
  transfer->ready = std::move(ready);
  transfer->work->retain();
  Work work(transfer->work);
  for (const std::shared_ptr<Part>& part : *parts) {
    part->transfer = transfer;
    transfer->lanes[part->lane] = true;
    start(part, options);
  }
  return work;
}

std::shared_ptr<Staging::Transfer> Staging::new_transfer(CopyStreams* streams, size_t parts) {
  auto transfer = std::make_shared<Transfer>();
  transfer->streams = streams;
  transfer->arrived = new engine::WorkState(driver_);
  transfer->work = new engine::WorkState(driver_);
  transfer->end = std::make_shared<CudaEvent>(&cuda_);
  transfer->left = parts;
  transfer->work->set_order(
      std::make_unique<ArrivalOrder>(&cuda_, streams->device(), transfer->arrived, transfer->end));
  return transfer;
}

// A side that this rank does not have has no address: a backend may look whether one is in place.
void Staging::bind(Part* part) {
  Call& call = part->piece.call;
  const bool is_broadcast = call.operation == Operation::kBroadcast;
  if (part->piece.has_input || is_broadcast) {
    call.input.data = part->block->data + part->piece.input_offset;
  }
  if (part->piece.has_output) call.output.data = part->block->data + part->piece.output_offset;
}

// Gives all pieces memory: a slot, for when it is their turn, or a block of their own.
Result<std::vector<std::shared_ptr<Staging::Part>>> Staging::placed(Pieces pieces) {
  std::vector<std::shared_ptr<Part>> parts;
  for (auto& [call, piece] : pieces) {
    auto part = std::make_shared<Part>();
    part->input = static_cast<std::byte*>(const_cast<void*>(call->input.data));
    part->output = static_cast<std::byte*>(call->output.data);
    part->piece = std::move(piece);
    if (part->piece.is_straight) {
      parts.push_back(std::move(part));
      continue;
    }
    // A message may wait for long: it keeps nobody else from a slot.
    const bool is_message = call->operation >= Operation::kSend;
    const size_t bytes = part->piece.bytes;
    if (!is_message && bytes > 0 && bytes <= slot_bytes_) {
      part->lane = next_slot_++ % kSlots;
      part->slot = &slots_[part->lane];
    }
    if (part->slot != nullptr && part->slot->block != nullptr) {
      part->block = part->slot->block;
    } else {
      Result<PinnedBlock*> block = memory_.take(part->slot == nullptr ? bytes : slot_bytes_);
      if (!block.ok()) {
        for (const std::shared_ptr<Part>& made : parts) {
          if (made->slot == nullptr && made->block != nullptr) memory_.give_back(made->block);
        }
        return block.status();
      }
      part->block = *block;
      if (part->slot != nullptr) part->slot->block = *block;
    }
    bind(part.get());
    parts.push_back(std::move(part));
  }
  return parts;
}

void Staging::start(const std::shared_ptr<Part>& part, const OperationOptions& options) {
  if (part->slot != nullptr || !part->piece.out.empty() || part->piece.is_straight) {
    part->gate = std::make_shared<engine::Gate>();
  }
  if (part->slot != nullptr) part->slot->users.push_back(part);
  if (part->gate != nullptr && (part->slot == nullptr || part->slot->users.size() == 1)) {
    report(copy_out(*part));
  }
  {
    const std::lock_guard<std::mutex> lock(ended_mutex_);
    ++under_way_;
  }
  const auto note = [this, part](const Status& status) {
    const std::lock_guard<std::mutex> lock(ended_mutex_);
    to_end_.emplace_back(part, status);
    ended_.notify_all();
  };
  OperationOptions of_host = options;
  of_host.stream = {};
  Result<Work> work = options_.host->submit_when({&part->piece.call, 1}, part->gate, of_host);
  if (!work.ok()) return note(work.status());
  part->work = *work;
  work->state()->note_done(note);
}

// What goes wrong on the device ends the group: the other ranks have numbered the operation.
void Staging::report(const Status& status) {
  if (!status.ok()) options_.host->report({.status = status});
}

Status Staging::copy_out(const Part& part) {
  const cuda::Stream out = part.transfer->streams->out(part.lane);
  CIUIC_RETURN_IF_ERROR(part.transfer->ready->wait_on(out));
  if (part.block != nullptr) CIUIC_RETURN_IF_ERROR(part.block->free->wait_on(out));
  for (const Copy& copy : part.piece.out) {
    CIUIC_RETURN_IF_ERROR(cuda::error_of(
        cuda_, "cudaMemcpyAsync from the device",
        cuda_.memcpy_async(part.block->data + part.piece.input_offset + copy.slot_offset,
                           part.input + copy.device_offset, copy.bytes, cuda::kDeviceToHost, out)));
  }
  auto notice = std::make_unique<Notice>();
  notice->gate = part.gate;
  notice->driver = driver_;
  return put(cuda_, out, std::move(notice));
}

Status Staging::copy_in(const Part& part) {
  const CopyStreams& streams = *part.transfer->streams;
  const cuda::Stream in = streams.in(part.lane);
  // With a gate the operation has come after it.
  if (part.gate == nullptr) CIUIC_RETURN_IF_ERROR(part.transfer->ready->wait_on(in));
  for (const Copy& copy : part.piece.in) {
    CIUIC_RETURN_IF_ERROR(cuda::error_of(
        cuda_, "cudaMemcpyAsync to the device",
        cuda_.memcpy_async(part.output + copy.device_offset, part.block->data + copy.slot_offset,
                           copy.bytes, cuda::kHostToDevice, in)));
  }
  return part.block == nullptr ? Status() : part.block->free->record(in, streams.device());
}

// The operation of the host has: its result goes to the device, its memory to the next one.
void Staging::has_ended(const std::shared_ptr<Part>& part, Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::shared_ptr<Transfer> transfer = part->transfer;
  const cuda::DeviceScope scope(cuda_, transfer->streams->device());
  if (status.ok()) {
    status = copy_in(*part);
    report(status);
  }
  if (!status.ok() && !options_.host->capabilities().can_abort) is_abandoned_ = true;
  if (part->slot != nullptr) {
    leave_slot(*part, status.ok());
  } else if (part->block != nullptr && !is_abandoned_) {
    memory_.give_back(part->block);
  }
  if (part->work.source() >= 0) transfer->work->came_from(part->work.source(), part->work.tag());
  part->work = Work();
  if (transfer->status.ok()) transfer->status = status;
  if (--transfer->left == 0) end(transfer.get(), part->lane);
}

// In a group that has failed the operations end in any order, and nothing more is copied.
void Staging::leave_slot(const Part& part, bool is_well) {
  std::deque<std::shared_ptr<Part>>& users = part.slot->users;
  const bool had_it = users.front().get() == &part;
  std::erase_if(users, [&part](const std::shared_ptr<Part>& user) { return user.get() == &part; });
  if (had_it && is_well && !users.empty()) report(copy_out(*users.front()));
}

// Records the transfer's end in the lane's stream in, behind what its other lanes have.
Status Staging::gather_lanes(const Transfer& transfer, size_t lane, bool with_out) {
  const CopyStreams& streams = *transfer.streams;
  const cuda::Stream last = streams.in(lane);
  for (size_t each = 0; each < CopyStreams::kLanes; ++each) {
    if (!transfer.lanes[each]) continue;
    for (const cuda::Stream stream : {streams.in(each), streams.out(each)}) {
      if (stream == last || (stream == streams.out(each) && !with_out)) continue;
      CudaEvent event(&cuda_);
      CIUIC_RETURN_IF_ERROR(event.record(stream, streams.device()));
      CIUIC_RETURN_IF_ERROR(event.wait_on(last));
    }
  }
  return transfer.end->record(last, streams.device());
}

// The transfer's Work ends with what has been put into the streams.
void Staging::end(Transfer* transfer, size_t lane) {
  const bool was_well = transfer->status.ok();
  const Status gathered = gather_lanes(*transfer, lane, /*with_out=*/!was_well);
  if (was_well) transfer->status = gathered;
  engine::WorkState* work = transfer->work;
  work->retain();
  if (transfer->status.ok()) {
    {
      const std::lock_guard<std::mutex> lock(pending_->mutex);
      pending_->works.insert(work);
    }
    auto notice = std::make_unique<Notice>();
    notice->work = work;
    notice->pending = pending_;
    notice->driver = driver_;
    transfer->status = put(cuda_, transfer->streams->in(lane), std::move(notice));
    if (!transfer->status.ok()) (void)pending_->take(work);
  } else if (gathered.ok()) {
    settle(*transfer);
  }
  transfer->arrived->finish(transfer->status);
  if (!transfer->status.ok()) {
    work->finish(transfer->status);
    work->release();
  }
  driver_->wake();
}

// Before a caller hears of a failure, its memory is left alone; but a device that hangs delays
// nobody for long.
void Staging::settle(const Transfer& transfer) {
  if (settles_until_ == 0) settles_until_ = now_ns() + kSettleNs;
  while (!transfer.end->is_done() && now_ns() < settles_until_) {
    std::this_thread::sleep_for(kSettleStep);
  }
}

void Staging::run_copier() {
  std::unique_lock<std::mutex> lock(ended_mutex_);
  for (;;) {
    ended_.wait(lock, [this] { return !to_end_.empty() || (closing_ && under_way_ == 0); });
    if (to_end_.empty()) return;
    auto [part, status] = std::move(to_end_.front());
    to_end_.pop_front();
    lock.unlock();
    has_ended(part, std::move(status));
    part.reset();
    lock.lock();
    --under_way_;
  }
}

void Staging::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(closed_, true)) return;
  }
  {
    const std::lock_guard<std::mutex> lock(ended_mutex_);
    closing_ = true;
    ended_.notify_all();
  }
  if (copier_.joinable()) copier_.join();
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.clear();
  for (engine::WorkState* work : std::exchange(pending_->works, {})) {
    work->finish({StatusCode::kSystem, "the device has failed before the result was copied to it"});
    work->release();
  }
  if (is_abandoned_) return memory_.abandon();
  memory_.clear();
}

}  // namespace ciuic::backend
