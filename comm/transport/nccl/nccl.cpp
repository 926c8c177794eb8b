// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/nccl.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/expect.hpp"
#include "comm/transport/failure.hpp"
#include "comm/transport/nccl/communicator.hpp"
#include "comm/transport/nccl/groups.hpp"
#include "comm/transport/occupancy.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/subset.hpp"
#include "kernels/cuda/try.hpp"
#include "kernels/exec/device_scope.hpp"
#include "kernels/reduce.hpp"

namespace winnow {
namespace {

using comm::NcclCommunicator;
using comm::NcclGroups;
using Operation = comm::NcclOperation;
using kernels::DeviceScope;

constexpr std::chrono::seconds kConnect{600};  // for a subset, which has no deadline
constexpr std::chrono::seconds kDrop{5};       // for messages, before memory is not registered

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::unique_ptr<NcclCommunicator> communicator, int node)
      : communicator_(std::move(communicator)),
        rank_(communicator_->rank()),
        size_(communicator_->size()),
        node_(node),
        device_(communicator_->device()),
        groups_(*communicator_) {}
  ~NcclTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node() const override { return node_; }
  bool takes(Place place) const override { return place == Place::cuda; }
  bool sizes_travel() const override { return false; }
  bool allows_threads() const override { return true; }

  void send(std::span<const std::byte> message, int peer) override;
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override;
  void enqueue_all_gather(std::span<std::byte> all, std::size_t message_bytes,
                          std::span<std::uint64_t> received) override;
  Ticket start(const Exec& exec) override;
  void wait(Ticket ticket, Deadline deadline) override;
  bool test(Ticket ticket, Deadline deadline) override;
  void wait_on_stream(Ticket ticket, Deadline deadline) override;
  bool captures() const override { return true; }
  void progress() override;
  void abort(std::string_view reason, FailureKind kind) noexcept override;
  MemoryRegistrar registrar() override;
  std::unique_ptr<Transport> subset(std::span<const int> ranks) override;
  std::unique_ptr<Transport> duplicate(Deadline deadline) override;

  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override;
  void reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline) override;
  void all_gather(const Exec& exec, std::span<const std::byte> mine, std::span<std::byte> all,
                  Deadline deadline) override;

 private:
  /// Memory of a caller's, registered while this lives.
  class Registration {
   public:
    Registration(NcclTransport& transport, std::span<std::byte> bytes)
        : transport_(transport), memory_{.bytes = bytes} {
      transport_.groups_.add(memory_);
    }
    ~Registration() { transport_.drop(memory_); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    NcclTransport& transport_;
    comm::NcclMemory memory_;
  };

  void drop(const comm::NcclMemory& memory) noexcept;
  void expect_usable() const { communicator_->failure().expect_usable(); }
  static void expect_stream(const Exec& exec);
  void expect_on_device(std::span<const std::byte> memory) const;
  [[noreturn]] void fail(const comm::Failure& why, int code);
  /// Returns whether all groups have ended before the deadline.
  bool await_idle(Deadline deadline) {
    const auto all_done = [this] {
      groups_.move_on();
      return groups_.empty();
    };
    return comm::spin_until(all_done, deadline);
  }
  std::unique_ptr<NcclCommunicator> split(int color, int key, Deadline deadline);
  template <class Done>
  bool look(Ticket ticket, Deadline deadline, const Done& done);
  /// Runs `body`. Anything it throws makes this transport unusable.
  template <class Body>
  auto guarded(const Body& body) {
    try {
      return body();
    } catch (const CommError& error) {
      fail(comm::failure_of(error), error.code());
    } catch (const CudaError& error) {
      fail(comm::failure_of(error), error.code());
    }
  }

  std::unique_ptr<NcclCommunicator> communicator_;
  int rank_, size_, node_, device_;
  NcclGroups groups_;
};

// Indexed by ElementType, and by ReduceOp.
constexpr std::array kTypes = {ncclFloat32, ncclBfloat16, ncclFloat16, ncclFloat64, ncclInt8,
                               ncclUint8,   ncclInt32,    ncclUint32,  ncclInt64,   ncclUint64};
constexpr std::array kOps = {ncclSum, ncclAvg, ncclMin, ncclMax, ncclProd};

/// Whether NCCL's operation differs from ReduceOp's: its minimum and maximum of floats are fmin and
/// fmax, which ignore NaN and may return either zero.
bool differs(ElementType type, ReduceOp op) {
  return (type == ElementType::float32 || type == ElementType::float64) &&
         (op == ReduceOp::minimum || op == ReduceOp::maximum);
}

// If messages are under way, peers and this rank's memory may still be in use. Messages that were
// never started do not matter.
NcclTransport::~NcclTransport() {
  if (groups_.empty() || communicator_->failure().failed()) return;
  try {
    groups_.move_on();
  } catch (const std::exception&) {
    // The failed messages are still there.
  }
  if (!groups_.empty()) communicator_->abort({"its transport has ended"});
}

void NcclTransport::expect_stream(const Exec& exec) {
  WINNOW_EXPECTS(exec.place == Place::cuda && exec.stream != nullptr,
                 "an NCCL transport runs on a stream: pass Place::cuda and exec.stream");
}

void NcclTransport::expect_on_device(std::span<const std::byte> memory) const {
  comm::expect_memory(memory);
  if (memory.empty()) return;
  cudaPointerAttributes found{};
  WINNOW_CUDA_TRY(cudaPointerGetAttributes(&found, memory.data()));
  if (found.type == cudaMemoryTypeManaged) return;
  const std::string text = "an NCCL transport of device " + std::to_string(device_) +
                           " was given " + std::to_string(memory.size()) + " bytes of ";
  WINNOW_EXPECTS(found.type == cudaMemoryTypeDevice,
                 text +
                     "host memory: copy them to the device first, or take mpi_transport or "
                     "local_transports, which move host memory");
  WINNOW_EXPECTS(found.device == device_,
                 text + "device " + std::to_string(found.device) + "; it takes its own alone");
}

void NcclTransport::send(std::span<const std::byte> message, int peer) {
  comm::expect_peer(peer, rank_, size_);
  expect_usable();
  expect_on_device(message);
  bytes_sent_ += message.size();
  if (message.empty()) return;  // both ranks know that nothing comes
  groups_.push({.kind = Operation::Kind::send,
                .from = message.data(),
                .count = message.size(),
                .peer = peer});
}

void NcclTransport::recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) {
  comm::expect_peer(peer, rank_, size_);
  expect_usable();
  expect_on_device(buffer);
  if (message_bytes != nullptr) *message_bytes = buffer.size();
  if (buffer.empty()) return;
  groups_.push({.kind = Operation::Kind::receive,
                .to = buffer.data(),
                .count = buffer.size(),
                .peer = peer});
}

/// One collective of whole slots. Bytes behind the messages go with them uncounted, as the headers
/// of other transports do.
void NcclTransport::enqueue_all_gather(std::span<std::byte> all, std::size_t message_bytes,
                                       std::span<std::uint64_t> received) {
  const std::size_t slot_bytes = comm::expect_slots(all.size(), message_bytes, size_);
  expect_usable();
  expect_on_device(all);
  std::ranges::fill(received, message_bytes);
  if (size_ == 1 || message_bytes == 0) return;
  bytes_sent_ += static_cast<std::uint64_t>(size_ - 1) * message_bytes;
  groups_.push({.kind = Operation::Kind::all_gather,
                .from = all.data() + static_cast<std::size_t>(rank_) * slot_bytes,
                .to = all.data(),
                .count = slot_bytes});
}

Ticket NcclTransport::start(const Exec& exec) {
  expect_usable();
  expect_stream(exec);
  const Ticket ticket = groups_.close(static_cast<cudaStream_t>(exec.stream));
  guarded([this] { groups_.move_on(); });
  return ticket;
}

void NcclTransport::progress() {
  const comm::FailureLatch failure = communicator_->failure();
  if (!failure.failed() && !failure.forked()) guarded([this] { groups_.move_on(); });
}

/// Makes progress; returns whether `done`, and throws if the deadline has passed.
template <class Done>
bool NcclTransport::look(Ticket ticket, Deadline deadline, const Done& done) {
  expect_usable();
  groups_.expect_started(ticket);
  return guarded([&] {
    groups_.move_on();
    if (done()) return true;
    if (deadline.passed()) {
      const int peer = groups_.first_peer();
      comm::fail_at_deadline("while it waited for " +
                             (peer < 0 ? "all ranks" : "rank " + std::to_string(peer)));
    }
    return false;
  });
}

bool NcclTransport::test(Ticket ticket, Deadline deadline) {
  return look(ticket, deadline, [&] { return groups_.done(ticket); });
}

void NcclTransport::wait(Ticket ticket, Deadline deadline) {
  comm::spin_until([&] { return test(ticket, deadline); });
}

void NcclTransport::wait_on_stream(Ticket ticket, Deadline deadline) {
  const auto issued = [&] { return groups_.issued(ticket); };
  comm::spin_until([&] { return look(ticket, deadline, issued); });
}

/// Another thread may have failed first, with another reason.
void NcclTransport::fail(const comm::Failure& why, int code) {
  communicator_->abort(comm::of_rank(rank_, why));
  const comm::FailureLatch first = communicator_->failure();
  if (!first.failed()) comm::fail_by(why, code);  // a child of a fork keeps nothing
  first.fail(code);
}

void NcclTransport::abort(std::string_view reason, FailureKind kind) noexcept {
  communicator_->abort(comm::aborted_here(reason, kind));
}

// NCCL splits only a communicator with nothing under way.
std::unique_ptr<NcclCommunicator> NcclTransport::split(int color, int key, Deadline deadline) {
  return guarded([&] {
    if (!await_idle(deadline)) comm::fail_at_deadline("before the communicator could be split");
    const DeviceScope scope(device_);
    return communicator_->split(color, key, deadline);
  });
}

MemoryRegistrar NcclTransport::registrar() {
  if (!communicator_->registers_memory()) return {};
  return [this](std::span<std::byte> memory) -> std::shared_ptr<void> {
    expect_on_device(memory);
    return std::make_shared<Registration>(*this, memory);
  };
}

/// NCCL may access the memory until its messages have ended. A communicator that has been aborted
/// keeps no registration.
void NcclTransport::drop(const comm::NcclMemory& memory) noexcept {
  try {
    if (communicator_->failure().failed()) return;
    guarded([&] {
      if (!await_idle(Deadline::after(kDrop))) {
        throw CommError("messages did not end before memory that they may use");
      }
      groups_.drop(memory);
    });
  } catch (const std::exception&) {
    // It is aborted.
  }
}

std::unique_ptr<Transport> NcclTransport::duplicate(Deadline deadline) {
  expect_usable();
  const comm::Quiet quiet(*this);
  return std::make_unique<NcclTransport>(split(0, rank_, deadline), node_);
}

std::unique_ptr<Transport> NcclTransport::subset(std::span<const int> ranks) {
  expect_usable();
  int place = 0, color = NCCL_SPLIT_NOCOLOR;
  std::exception_ptr refusal;
  try {
    place = comm::place_in_subset(*this, ranks);
    // Groups are disjoint, so their lowest ranks identify them.
    color = *std::ranges::min_element(ranks);
  } catch (const UsageError&) {
    refusal = std::current_exception();  // thrown later: the others wait for this rank first
  }
  auto part = split(color, place, Deadline::after(kConnect));
  if (refusal) std::rethrow_exception(refusal);
  if (part->size() != static_cast<int>(ranks.size()) || part->rank() != place) {
    throw CommError("ranks differ in what they call the subset of rank " + std::to_string(color));
  }
  return std::make_unique<NcclTransport>(std::move(part), node_);
}

void NcclTransport::all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                               Deadline deadline) {
  kernels::expect_reducible(elements.type(), op);
  comm::expect_memory(elements);
  expect_usable();
  expect_stream(exec);
  expect_on_device(elements.bytes());
  if (elements.size() == 0) return;
  std::byte* const memory = elements.bytes().data();
  Operation operation{.kind = Operation::Kind::all_reduce,
                      .from = memory,
                      .to = memory,
                      .count = elements.size(),
                      .type = kTypes[static_cast<std::size_t>(elements.type())],
                      .op = kOps[static_cast<std::size_t>(op)]};
  if (differs(elements.type(), op)) {
    operation.type = elements.type() == ElementType::float32 ? ncclUint32 : ncclUint64;
    operation.floats = elements;
  }
  groups_.push(operation);
  wait_on_stream(start(exec), deadline);
}

void NcclTransport::reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline) {
  expect_usable();
  expect_stream(exec);
  expect_on_device(std::as_bytes(elements));
  if (elements.empty()) return;
  const auto ranks = static_cast<std::uint64_t>(size_);
  if (elements.size() % ranks == 0) {
    const Chunk own = ring_chunk(elements.size(), rank_, size_);
    groups_.push({.kind = Operation::Kind::reduce_scatter,
                  .from = elements.data(),
                  .to = elements.data() + own.begin,
                  .count = own.end - own.begin,
                  .type = ncclFloat32});
  } else {
    // ncclReduceScatter cannot handle chunks of two lengths.
    for (int root = 0; root < size_; ++root) {
      const Chunk chunk = ring_chunk(elements.size(), root, size_);
      if (chunk.begin == chunk.end) continue;
      float* const memory = elements.data() + chunk.begin;
      groups_.push({.kind = Operation::Kind::reduce,
                    .from = memory,
                    .to = memory,
                    .count = chunk.end - chunk.begin,
                    .type = ncclFloat32,
                    .peer = root});
    }
  }
  wait_on_stream(start(exec), deadline);
}

void NcclTransport::all_gather(const Exec& exec, std::span<const std::byte> mine,
                               std::span<std::byte> all, Deadline deadline) {
  comm::expect_gatherable(mine.size(), all.size(), size_);
  expect_usable();
  expect_stream(exec);
  expect_on_device(mine);
  expect_on_device(all);
  if (mine.empty()) return;
  groups_.push({.kind = Operation::Kind::all_gather,
                .from = mine.data(),
                .to = all.data(),
                .count = mine.size()});
  wait_on_stream(start(exec), deadline);
}

}  // namespace

bool nccl_available() {
  try {
    comm::expect_library();
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<Transport> nccl_transport(ncclComm* communicator, int node,
                                          const NcclOptions& options, Deadline deadline) {
  return std::make_unique<NcclTransport>(
      std::make_unique<NcclCommunicator>(communicator, options, deadline), node);
}

std::unique_ptr<Transport> nccl_transport(Transport& other, Deadline deadline,
                                          const NcclOptions& options) {
  const comm::Quiet quiet(other);
  return std::make_unique<NcclTransport>(NcclCommunicator::meet(other, options, deadline),
                                         other.node());
}

std::unique_ptr<Transport> nccl_transport(const NcclMeeting& meeting, Deadline deadline,
                                          const NcclOptions& options) {
  return std::make_unique<NcclTransport>(NcclCommunicator::meet(meeting, options, deadline),
                                         meeting.node);
}

}  // namespace winnow
