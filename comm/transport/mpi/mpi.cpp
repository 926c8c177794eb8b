// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/mpi.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/expect.hpp"
#include "comm/transport/failure_latch.hpp"
#include "comm/transport/gather_values.hpp"
#include "comm/transport/message_transport.hpp"
#include "comm/transport/mpi/calls.hpp"
#include "comm/transport/mpi/lanes.hpp"
#include "comm/transport/mpi/meeting.hpp"
#include "comm/transport/mpi/notices.hpp"
#include "comm/transport/mpi/reduce.hpp"
#include "comm/transport/occupancy.hpp"
#include "comm/transport/poll.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/reduce.hpp"

namespace winnow {

namespace {

using comm::Failure;
using comm::mpi_is_up;
using comm::MpiLanes;
using comm::MpiMeeting;
using comm::MpiNotices;
using comm::MpiReductions;

// Unless the caller decides, pieces between nodes are short. MPI asks first whether a long message
// may come; if one connection serves both directions, the answer waits behind all the data queued
// on it: with Open MPI over TCP a ring of 256 KB blocks left more than half of a link idle. Short
// messages leave at once. Open MPI over TCP asks from 64 KB (headers included); other networks have
// other thresholds. Within a node nothing queues, and long pieces are copied once, short ones
// twice.
constexpr std::uint64_t kWithinNode = std::uint64_t{1} << 30;  // bytes of a piece
constexpr std::uint64_t kBetweenNodes = std::uint64_t{60} << 10;
constexpr unsigned kTurnsPerProbe = 64;
constexpr std::chrono::milliseconds kPatience{200};  // for transfers that a failure left under way

void expect_up(const char* what) {
  WINNOW_EXPECTS(mpi_is_up(), std::string(what) + " before MPI_Init or after MPI_Finalize");
}

/// Whether the running MPI takes device memory. Asks at run time, since the program may run with
/// another MPI than the one it was built with.
bool takes_device_memory(MpiMemory memory) {
  if (memory == MpiMemory::host) return false;
  using Query = int();
  auto* const query = reinterpret_cast<Query*>(::dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  return query != nullptr && query() != 0;
}

class MpiTransport final : public comm::GrowingTransport {
 public:
  MpiTransport(MpiMeeting meeting, std::size_t chunk_bytes, bool takes_device_memory);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node() const override { return node_; }
  bool takes(Place place) const override { return place != Place::cuda || takes_device_memory_; }

  Ticket start(const Exec& exec) override;
  void wait(Ticket ticket, Deadline deadline) override;
  bool test(Ticket ticket, Deadline deadline) override;
  void progress() override;
  void abort(std::string_view reason, FailureKind kind) noexcept override;
  std::unique_ptr<Transport> duplicate(Deadline deadline) override;

  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override;
  bool native_all_reduce() const override { return true; }
  bool allows_threads() const override {
    int provided = MPI_THREAD_SINGLE;
    return MPI_Query_thread(&provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE;
  }

 private:
  void enqueue(const comm::Message& message) override;
  template <class Body>
  auto guarded(const Body& body);
  void expect_no_notice();
  void expect_all_to_come();
  void reduce_within_node(const Exec& exec, const Elements& elements, ReduceOp op,
                          Deadline deadline);
  void drain(bool sends_too) noexcept;
  bool all_ranks_leave() noexcept;
  [[noreturn]] void fail(const Failure& why, int code = 0);

  MPI_Comm comm_;
  int rank_, size_, node_;
  std::size_t chunk_bytes_;  // as given
  bool takes_device_memory_;
  unsigned turns_ = 0;  // of waits
  MpiLanes lanes_;
  comm::FailureLatch failure_;
  comm::NodeGroup group_;
  MpiNotices notices_;
  MpiReductions reductions_;
};

/// Bytes of the longest piece within a node, and of an all_reduce.
std::uint64_t longest_piece(std::size_t chunk_bytes) {
  return chunk_bytes == 0 ? kWithinNode : chunk_bytes;
}

/// Bytes of a full piece, by peer.
std::vector<std::uint64_t> chunks_of(const MpiMeeting& meeting, std::size_t chunk_bytes) {
  std::vector<std::uint64_t> chunks;
  for (const int node : meeting.nodes) {
    const bool within = node == meeting.nodes[static_cast<std::size_t>(meeting.rank)];
    chunks.push_back(within || chunk_bytes != 0 ? longest_piece(chunk_bytes) : kBetweenNodes);
  }
  return chunks;
}

MpiTransport::MpiTransport(MpiMeeting meeting, std::size_t chunk_bytes, bool takes_device_memory)
    : comm_(meeting.communicator),
      rank_(meeting.rank),
      size_(static_cast<int>(meeting.nodes.size())),
      node_(meeting.nodes[static_cast<std::size_t>(rank_)]),
      chunk_bytes_(chunk_bytes),
      takes_device_memory_(takes_device_memory),
      lanes_(comm_, chunks_of(meeting, chunk_bytes)),
      group_(std::move(meeting.group)),
      notices_(size_) {}

// Never waits for a peer longer than kPatience. A rank frees the communicator only if it sees all
// others get here within that time: Open MPI hangs in later calls if a rank frees one that others
// still send on. Otherwise it is left to MPI_Finalize, and so is a transfer that does not end.
MpiTransport::~MpiTransport() {
  if (failure_.forked() || !mpi_is_up()) return;
  const bool broken = failure_.failed() || notices_.given();
  drain(true);
  lanes_.let_go();
  notices_.let_go();
  reductions_.let_go();
  if (!broken && all_ranks_leave()) MPI_Comm_free(&comm_);
}

void MpiTransport::enqueue(const comm::Message& message) {
  failure_.expect_usable();
  lanes_.enqueue(message);
}

/// Runs `body`. A CommError that it throws makes this unusable.
template <class Body>
auto MpiTransport::guarded(const Body& body) {
  try {
    return body();
  } catch (const CommError& error) {
    fail(comm::failure_of(error), error.code());
  }
}

Ticket MpiTransport::start(const Exec& exec) {
  failure_.expect_usable();
  expect_up("a start");
  WINNOW_EXPECTS(takes(exec.place), "this MPI takes no device memory: copy messages to the host");
  return guarded([&] { return lanes_.start(exec); });
}

void MpiTransport::progress() {
  if (failure_.failed() || failure_.forked() || !mpi_is_up()) return;
  guarded([this] { lanes_.move(); });
  expect_no_notice();
}

bool MpiTransport::test(Ticket ticket, Deadline deadline) {
  failure_.expect_usable();
  lanes_.messages().starts().expect_started(ticket);
  guarded([this] { lanes_.move(); });
  if (lanes_.retire(ticket)) return true;
  if (++turns_ % kTurnsPerProbe == 0) expect_no_notice();
  if (deadline.passed()) fail(lanes_.messages().missed_deadline());
  return false;
}

void MpiTransport::wait(Ticket ticket, Deadline deadline) {
  comm::spin_until([&] { return test(ticket, deadline); });
}

void MpiTransport::expect_no_notice() {
  std::optional<Failure> found;
  guarded([&] { comm::check_mpi(notices_.probe(comm_, found), "MPI_Iprobe"); });
  if (found) fail(*found);
}

// Before a call of MPI that does not end if a rank has aborted. A probe may let MPI take in what a
// faster rank has sent for that call before this rank has sent its own, so that within a node the
// two copies do not overlap: 1 MiB on 2 ranks then took 7 to 17 % longer.
void MpiTransport::expect_all_to_come() {
  if (!group_) {
    expect_no_notice();
  } else if (group_.alarm_is_raised()) {
    const auto look = [&] {
      expect_no_notice();
      return false;
    };
    comm::spin_until(look, Deadline::after(kPatience));
    fail({"a rank aborted, and its notice did not come"});
  }
}

void MpiTransport::abort(std::string_view reason, FailureKind kind) noexcept {
  if (failure_.forked() || !mpi_is_up()) return;
  if (group_) group_.raise_alarm();
  notices_.send(comm_, rank_, reason, kind);
  failure_.keep(comm::aborted_here(reason, kind));
}

// The ranks first wait for each other by messages, which an abort ends: MPI's own calls it would
// not.
std::unique_ptr<Transport> MpiTransport::duplicate(Deadline deadline) {
  failure_.expect_usable();
  const comm::Quiet quiet(*this);
  (void)comm::gather_values(*this, std::byte{}, deadline);
  const MpiMemory memory = takes_device_memory_ ? MpiMemory::automatic : MpiMemory::host;
  return comm::abort_on_error(*this,
                              [&] { return mpi_transport(comm_, chunk_bytes_, memory, deadline); });
}

// Gives transfers under way a moment to end.
void MpiTransport::drain(bool sends_too) noexcept {
  const auto all_done = [&] {
    bool open = lanes_.any_open(sends_too);
    if (sends_too) open |= notices_.any_open();
    return !open;
  };
  comm::spin_until(all_done, Deadline::after(kPatience));
}

bool MpiTransport::all_ranks_leave() noexcept {
  MPI_Request barrier = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(comm_, &barrier) != MPI_SUCCESS) return false;
  int done = 0, code = MPI_SUCCESS;
  const auto ended = [&] {
    code = MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS || done != 0;
  };
  return comm::spin_until(ended, Deadline::after(kPatience)) && code == MPI_SUCCESS;
}

// Receipts under way have matched their message, and mostly end within kPatience; any other may
// write to its buffer until the transport is destroyed.
void MpiTransport::fail(const Failure& why, int code) {
  failure_.keep(comm::of_rank(rank_, why));
  drain(false);
  failure_.fail(code);
}

// Messages of other communicators that ranks wait for before they come here need MPI to work.
void MpiTransport::reduce_within_node(const Exec& exec, const Elements& elements, ReduceOp op,
                                      Deadline deadline) {
  comm::abort_on_error(*this, [&] {
    group_.all_reduce(exec, elements, op, [&] {
      expect_no_notice();
      if (deadline.passed()) fail(comm::missed_deadline("while it waited in an all_reduce"));
    });
  });
}

void MpiTransport::all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                              Deadline deadline) {
  kernels::expect_reducible(elements.type(), op);
  comm::expect_memory(elements);
  failure_.expect_usable();
  expect_up("an all_reduce");
  if (size_ == 1 || elements.size() == 0) return;
  if (exec.place == Place::cuda) {
    // Winnow's own operations would read a device's memory on the host.
    if (!MpiReductions::is_native(elements.type(), op)) {
      Transport::all_reduce(exec, elements, op, deadline);
      return;
    }
    kernels::wait(exec);
  }
  expect_all_to_come();
  if (exec.place != Place::cuda && group_.takes(elements.bytes().size())) {
    reduce_within_node(exec, elements, op, deadline);
    return;
  }
  const std::size_t most =
      std::max<std::size_t>(1, longest_piece(chunk_bytes_) / bytes_of(elements.type()));
  for (std::size_t begin = 0; begin < elements.size(); begin += most) {
    const Elements piece = elements.subspan(begin, std::min(most, elements.size() - begin));
    const int code =
        MPI_Allreduce(MPI_IN_PLACE, piece.bytes().data(), static_cast<int>(piece.size()),
                      MpiReductions::type(piece.type()), reductions_.op(piece.type(), op), comm_);
    guarded([code] { comm::check_mpi(code, "MPI_Allreduce"); });
  }
}

}  // namespace

std::unique_ptr<Transport> mpi_transport(MPI_Comm communicator, std::size_t chunk_bytes,
                                         MpiMemory memory, Deadline deadline) {
  expect_up("mpi_transport");
  int between_groups = 0;
  WINNOW_EXPECTS(communicator != MPI_COMM_NULL &&
                     MPI_Comm_test_inter(communicator, &between_groups) == MPI_SUCCESS &&
                     between_groups == 0,
                 "mpi_transport of MPI_COMM_NULL or of an intercommunicator: give it a "
                 "communicator whose group this rank is in");
  return std::make_unique<MpiTransport>(comm::meet(communicator, chunk_bytes, deadline),
                                        chunk_bytes, takes_device_memory(memory));
}

}  // namespace winnow
