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
#include "comm/transport/await_all.hpp"
#include "comm/transport/expect.hpp"
#include "comm/transport/failure_latch.hpp"
#include "comm/transport/fifo.hpp"
#include "comm/transport/growing.hpp"
#include "comm/transport/mpi/calls.hpp"
#include "comm/transport/mpi/meeting.hpp"
#include "comm/transport/mpi/notices.hpp"
#include "comm/transport/mpi/pieces.hpp"
#include "comm/transport/mpi/reduce.hpp"
#include "comm/transport/occupancy.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/ticket_queue.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/reduce.hpp"

namespace winnow {

namespace {

using comm::Failure;
using comm::Fifo;
using comm::mpi_is_up;
using comm::mpi_text;
using comm::MpiNotices;
using comm::MpiPieces;
using comm::MpiReductions;

// A message of s bytes travels as floor(s / chunk) + 1 pieces: full ones, then one shorter than
// chunk, which marks the end. MPI keeps the order of pieces with one sender and tag. Messages
// between two ranks form a lane in each direction; `current` is its first message with pieces to
// post.
//
// A receipt is posted only after a probe has found a piece and its size, never before: Open MPI
// (4.1, shared memory, single copy) writes past the end of a buffer that is too short for its
// message, though it then reports truncation. So a failed wait also has nothing to cancel.

// Unless the caller decides, pieces between nodes are short. MPI asks first whether a long message
// may come; if one connection serves both directions, the answer waits behind all the data queued
// on it: with Open MPI over TCP a ring of 256 KB blocks left more than half of a link idle. Short
// messages leave at once. Open MPI over TCP asks from 64 KB (headers included); other networks have
// other thresholds. Within a node nothing queues, and long pieces are copied once, short ones
// twice.
//
// MPI completes a send that leaves at once before the receiver has asked for it, so kWindow would
// bound nothing. Hence every kWindow-th full piece of a lane is synchronous (it completes when the
// receiver has matched it) and waits for the previous synchronous one: at most 2 kWindow - 1 full
// pieces of a lane pile up unmatched.

constexpr std::uint64_t kWithinNode = std::uint64_t{1} << 30;  // bytes of a piece
constexpr std::uint64_t kBetweenNodes = std::uint64_t{60} << 10;
constexpr int kWindow = 16;  // pieces of one lane under way
constexpr unsigned kTurnsPerProbe = 64;
constexpr std::chrono::milliseconds kPatience{200};  // for transfers that a failure left under way
constexpr std::uint64_t kNone = ~std::uint64_t{0};

void expect_up(const char* what) {
  WINNOW_EXPECTS(mpi_is_up(), std::string(what) + " before MPI_Init or after MPI_Finalize");
}

struct Message {
  std::byte* data;               // only read if is_send
  std::uint64_t bytes;           // to send, or the size of the receive buffer
  std::uint64_t* message_bytes;  // where to store the received size, or null
  int peer;
  bool is_send;
  const std::uint64_t* written = nullptr;  // bytes ready to send, or null: all
  std::uint64_t* arrived = nullptr;        // where to report received bytes, or null
  std::uint64_t offset = 0;                // bytes posted
  std::uint64_t next = kNone;              // the message after it in its lane
  int under_way = 0;                       // pieces posted and not done
  bool posted = false;                     // all pieces are
  bool complete = false;
};

struct Lane {
  std::uint64_t chunk;            // bytes of a full piece, the same for both ranks
  std::uint64_t current = kNone;  // the first message with pieces to post
  std::uint64_t last = kNone;     // the last message; valid only if there is a current one
  int under_way = 0;
  int full_pieces = 0;       // sent since the last synchronous piece
  bool unconfirmed = false;  // a synchronous piece is under way
  bool unwritten = false;    // is in unwritten_
};

/// One start.
struct Started {
  std::uint64_t end = 0;  // number of the message after its last
  bool marked = false;
  std::unique_ptr<kernels::StreamMark> mark;  // stays with the slot
};

/// Whether the running MPI takes device memory. Asks at run time, since the program may run with
/// another MPI than the one it was built with.
bool takes_device_memory(MpiMemory memory) {
  if (memory == MpiMemory::host) return false;
  using Query = int();
  auto* const query = reinterpret_cast<Query*>(::dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  return query != nullptr && query() != 0;
}

class MpiTransport final : public Transport, public comm::GrowingMessages {
 public:
  MpiTransport(MPI_Comm communicator, std::size_t chunk_bytes, MpiMemory memory, Deadline deadline);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node() const override { return node_; }
  bool takes(Place place) const override { return place != Place::cuda || takes_device_memory_; }

  void send(std::span<const std::byte> message, int peer) override {
    send_growing(message, peer, nullptr);
  }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override {
    recv_growing(buffer, peer, message_bytes, nullptr);
  }
  void send_growing(std::span<const std::byte> message, int peer,
                    const std::uint64_t* written) override;
  void recv_growing(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes,
                    std::uint64_t* arrived) override;
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
  void enqueue(const Message& message);
  Lane& lane_of(const Message& message);
  void post_begun();
  bool post_sends(Lane& lane);
  void post_receipts(Lane& lane, int peer);
  void post_piece(Lane& lane, std::uint64_t bytes, bool synchronous = false);
  void move_on();
  void finish_pieces();
  bool retire(std::uint64_t ticket);
  void expect_no_notice();
  void expect_all_to_come();
  void reduce_within_node(const Exec& exec, const Elements& elements, ReduceOp op,
                          Deadline deadline);
  void drain(bool sends_too) noexcept;
  bool all_ranks_leave() noexcept;
  [[noreturn]] void fail(const Failure& why, int code = 0);

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::size_t chunk_bytes_;  // as given
  std::uint64_t chunk_;      // bytes of the longest piece within a node, and of an all_reduce
  int rank_ = 0, size_ = 0, node_ = 0;

  bool takes_device_memory_;
  comm::TicketQueue<Started> starts_;
  std::uint64_t reached_ = 0;  // the last ticket that its stream has reached
  Fifo<Message> messages_;     // of all lanes, in the order enqueued; wait pops from the front
  std::uint64_t linked_ = 0;   // number of the first message in no lane
  unsigned turns_ = 0;         // of waits
  std::vector<Lane> send_lanes_, recv_lanes_;  // by peer
  std::vector<int> awaited_;                   // peers whose recv_lanes_ have a current message
  std::vector<int> unwritten_;  // peers whose send_lanes_ wait for more of a message to be written

  MpiPieces pieces_;                 // each belongs to a message of messages_, by number
  std::size_t requests_wanted_ = 0;  // the most that messages_ can have under way

  comm::FailureLatch failure_;
  comm::NodeGroup group_;
  std::unique_ptr<MpiNotices> notices_;
  std::unique_ptr<MpiReductions> reductions_;
};

MpiTransport::MpiTransport(MPI_Comm communicator, std::size_t chunk_bytes, MpiMemory memory,
                           Deadline deadline)
    : chunk_bytes_(chunk_bytes),
      chunk_(chunk_bytes == 0 ? kWithinNode : chunk_bytes),
      takes_device_memory_(takes_device_memory(memory)) {
  expect_up("mpi_transport");
  int between_groups = 0;
  WINNOW_EXPECTS(communicator != MPI_COMM_NULL &&
                     MPI_Comm_test_inter(communicator, &between_groups) == MPI_SUCCESS &&
                     between_groups == 0,
                 "mpi_transport of MPI_COMM_NULL or of an intercommunicator: give it a "
                 "communicator whose group this rank is in");
  comm::MpiMeeting meeting = comm::meet(communicator, chunk_bytes, deadline);
  comm_ = meeting.communicator;
  group_ = std::move(meeting.group);
  comm::check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  size_ = static_cast<int>(meeting.nodes.size());
  node_ = meeting.nodes[static_cast<std::size_t>(rank_)];
  for (const int node : meeting.nodes) {
    const std::uint64_t chunk = node == node_ || chunk_bytes != 0 ? chunk_ : kBetweenNodes;
    send_lanes_.push_back({.chunk = chunk});
    recv_lanes_.push_back({.chunk = chunk});
  }
  awaited_.reserve(static_cast<std::size_t>(size_));
  unwritten_.reserve(static_cast<std::size_t>(size_));
  notices_ = std::make_unique<MpiNotices>(size_);
  reductions_ = std::make_unique<MpiReductions>();
}

// Never waits for a peer longer than kPatience. A rank frees the communicator only if it sees all
// others get here within that time: Open MPI hangs in later calls if a rank frees one that others
// still send on. Otherwise it is left to MPI_Finalize, and so is a transfer that does not end.
MpiTransport::~MpiTransport() {
  if (failure_.forked() || !mpi_is_up()) return;
  const bool broken = failure_.failed() || notices_->given();
  drain(true);
  pieces_.let_go();
  notices_->let_go();
  reductions_->let_go();
  if (!broken && all_ranks_leave()) MPI_Comm_free(&comm_);
}

void MpiTransport::send_growing(std::span<const std::byte> message, int peer,
                                const std::uint64_t* written) {
  enqueue({.data = const_cast<std::byte*>(message.data()),
           .bytes = message.size(),
           .message_bytes = nullptr,
           .peer = peer,
           .is_send = true,
           .written = written});
  bytes_sent_ += message.size();
}

void MpiTransport::recv_growing(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes,
                                std::uint64_t* arrived) {
  enqueue({.data = buffer.data(),
           .bytes = buffer.size(),
           .message_bytes = message_bytes,
           .peer = peer,
           .is_send = false,
           .arrived = arrived});
}

std::size_t most_requests(const Message& message, std::uint64_t chunk) {
  return static_cast<std::size_t>(std::min<std::uint64_t>(message.bytes / chunk + 1, kWindow));
}

void MpiTransport::enqueue(const Message& message) {
  comm::expect_peer(message.peer, rank_, size_);
  comm::expect_memory({static_cast<const std::byte*>(message.data), message.bytes});
  failure_.expect_usable();
  messages_.push(message);
  requests_wanted_ += most_requests(message, lane_of(message).chunk);
}

Lane& MpiTransport::lane_of(const Message& message) {
  return (message.is_send ? send_lanes_ : recv_lanes_)[static_cast<std::size_t>(message.peer)];
}

Ticket MpiTransport::start(const Exec& exec) {
  failure_.expect_usable();
  expect_up("a start");
  WINNOW_EXPECTS(takes(exec.place), "this MPI takes no device memory: copy messages to the host");
  // Reserves the most that the messages can have under way, whatever the timing, so that steps of
  // equal shape allocate once.
  pieces_.reserve(requests_wanted_);
  Started& start = starts_.extend();
  const Ticket ticket{starts_.last()};
  start.end = messages_.end();
  start.marked = exec.place == Place::cuda;
  if (start.marked) {
    if (start.mark == nullptr) start.mark = std::make_unique<kernels::StreamMark>();
    start.mark->set(exec);
  }
  post_begun();
  return ticket;
}

// Puts the messages of starts that their stream has reached into their lanes, in order.
void MpiTransport::post_begun() {
  reached_ = std::max(reached_, starts_.completed());  // an empty start completes by itself
  for (; reached_ != starts_.last(); ++reached_) {
    const Started& start = starts_[reached_ + 1];
    try {
      if (start.marked && !start.mark->passed()) return;
    } catch (const CudaError& error) {
      fail({error.what()}, error.code());
    }
    for (; linked_ != start.end; ++linked_) {
      const Message& message = messages_[linked_];
      Lane& lane = lane_of(message);
      if (lane.current != kNone) {
        messages_[lane.last].next = linked_;
      } else {
        lane.current = linked_;
        if (!message.is_send) awaited_.push_back(message.peer);
      }
      lane.last = linked_;
      if (message.is_send) (void)post_sends(lane);
    }
  }
}

// Posts the sends that may go. False if more of a message must be written first.
bool MpiTransport::post_sends(Lane& lane) {
  while (lane.current != kNone && lane.under_way < kWindow) {
    const Message& message = messages_[lane.current];
    const std::uint64_t bytes = std::min(lane.chunk, message.bytes - message.offset);
    if (message.written != nullptr && *message.written < message.offset + bytes) {
      if (!std::exchange(lane.unwritten, true)) unwritten_.push_back(message.peer);
      return false;
    }
    const bool synchronous = bytes == lane.chunk && lane.full_pieces + 1 == kWindow;
    if (synchronous && lane.unconfirmed) return true;
    post_piece(lane, bytes, synchronous);
    if (bytes == lane.chunk) lane.full_pieces = synchronous ? 0 : lane.full_pieces + 1;
    lane.unconfirmed |= synchronous;
  }
  return true;
}

// Posts receipts for the pieces that have arrived.
void MpiTransport::post_receipts(Lane& lane, int peer) {
  while (lane.current != kNone && lane.under_way < kWindow) {
    int bytes = 0;
    const int code = MpiPieces::probe(comm_, peer, bytes);
    if (code != MPI_SUCCESS) fail({"MPI_Iprobe: " + mpi_text(code)}, code);
    if (bytes < 0) return;
    const Message& message = messages_[lane.current];
    const std::uint64_t total = message.offset + static_cast<std::uint64_t>(bytes);
    if (total > message.bytes)
      fail({"a message of " + std::to_string(total) + " bytes or more from rank " +
                std::to_string(peer) + " is longer than its buffer of " +
                std::to_string(message.bytes),
            FailureKind::usage});
    post_piece(lane, static_cast<std::uint64_t>(bytes));
  }
}

// Posts the next piece of the lane's current message.
void MpiTransport::post_piece(Lane& lane, std::uint64_t bytes, bool synchronous) {
  Message& message = messages_[lane.current];
  const int code =
      pieces_.post(comm_, {.data = message.bytes > 0 ? message.data + message.offset : nullptr,
                           .bytes = static_cast<int>(bytes),
                           .peer = message.peer,
                           .is_send = message.is_send,
                           .synchronous = synchronous,
                           .message = lane.current,
                           .offset = message.offset});
  if (code != MPI_SUCCESS) {
    const char* const call = synchronous ? "MPI_Issend to" : "MPI_Isend to";
    fail({(message.is_send ? call : "MPI_Irecv from") + std::string(" rank ") +
          std::to_string(message.peer) + ": " + mpi_text(code)},
         code);
  }
  ++message.under_way;
  ++lane.under_way;
  message.offset += bytes;
  if (bytes == lane.chunk) return;
  message.posted = true;
  lane.current = message.next;
}

void MpiTransport::progress() {
  if (failure_.failed() || failure_.forked() || !mpi_is_up()) return;
  move_on();
  expect_no_notice();
}

// Notes what is done, and posts what has arrived or may follow.
void MpiTransport::move_on() {
  post_begun();
  finish_pieces();
  std::erase_if(unwritten_, [this](int peer) {
    Lane& lane = send_lanes_[static_cast<std::size_t>(peer)];
    lane.unwritten = !post_sends(lane);
    return !lane.unwritten;
  });
  for (std::size_t i = 0; i < awaited_.size();) {
    Lane& lane = recv_lanes_[static_cast<std::size_t>(awaited_[i])];
    post_receipts(lane, awaited_[i]);
    if (lane.current != kNone) {
      ++i;
    } else {
      awaited_[i] = awaited_.back();
      awaited_.pop_back();
    }
  }
}

void MpiTransport::finish_pieces() {
  std::span<const MpiPieces::Finished> finished;
  const int code = pieces_.test(finished);
  if (code != MPI_SUCCESS) fail({"MPI_Testsome: " + mpi_text(code)}, code);

  const MpiPieces::Finished* failed = nullptr;
  for (const MpiPieces::Finished& piece : finished) {
    if (piece.error != MPI_SUCCESS) {
      failed = &piece;
      continue;
    }
    Message& message = messages_[piece.message];
    Lane& lane = lane_of(message);
    --message.under_way;
    --lane.under_way;
    if (piece.synchronous) lane.unconfirmed = false;
    message.complete = message.posted && message.under_way == 0;
    if (message.arrived != nullptr)
      *message.arrived = pieces_.first_open(piece.message, message.offset);
    if (message.complete && message.message_bytes != nullptr)
      *message.message_bytes = message.offset;
  }
  if (failed != nullptr) {
    fail({"transfer with rank " + std::to_string(messages_[failed->message].peer) + ": " +
          mpi_text(failed->error)},
         failed->error);
  }
  for (const MpiPieces::Finished& piece : finished) {
    const Message& message = messages_[piece.message];
    if (message.is_send) (void)post_sends(lane_of(message));
  }
}

// Drops completed messages of starts up to `ticket`; returns whether all of them were complete.
bool MpiTransport::retire(std::uint64_t ticket) {
  return starts_.retire(ticket, [this](const Started& start) {
    for (; messages_.begin() != start.end; messages_.pop()) {
      const Message& message = messages_.front();
      if (!message.complete) return false;
      requests_wanted_ -= most_requests(message, lane_of(message).chunk);
    }
    return true;
  });
}

bool MpiTransport::test(Ticket ticket, Deadline deadline) {
  failure_.expect_usable();
  starts_.expect_started(ticket);
  move_on();
  if (retire(ticket.number)) return true;
  if (++turns_ % kTurnsPerProbe == 0) expect_no_notice();
  if (deadline.passed()) {
    const Message& first = messages_.front();
    fail(comm::missed_deadline(std::string("while it waited for a message ") +
                               (first.is_send ? "to" : "from") + " rank " +
                               std::to_string(first.peer)));
  }
  return false;
}

void MpiTransport::wait(Ticket ticket, Deadline deadline) {
  comm::spin_until([&] { return test(ticket, deadline); });
}

void MpiTransport::expect_no_notice() {
  std::optional<Failure> found;
  const int code = notices_->probe(comm_, found);
  if (code != MPI_SUCCESS) fail({"MPI_Iprobe: " + mpi_text(code)}, code);
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
  notices_->send(comm_, rank_, reason, kind);
  failure_.keep(comm::aborted_here(reason, kind));
}

// The ranks first wait for each other by messages, which an abort ends: MPI's own calls it would
// not.
std::unique_ptr<Transport> MpiTransport::duplicate(Deadline deadline) {
  failure_.expect_usable();
  const comm::Quiet quiet(*this);
  comm::await_all(*this, deadline);
  const MpiMemory memory = takes_device_memory_ ? MpiMemory::automatic : MpiMemory::host;
  return comm::abort_on_error(
      *this, [&] { return std::make_unique<MpiTransport>(comm_, chunk_bytes_, memory, deadline); });
}

// Gives transfers under way a moment to end.
void MpiTransport::drain(bool sends_too) noexcept {
  const auto all_done = [&] {
    bool open = pieces_.any_open(sends_too);
    if (sends_too) open |= notices_->any_open();
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
  const std::size_t most = std::max<std::size_t>(1, chunk_ / bytes_of(elements.type()));
  for (std::size_t begin = 0; begin < elements.size(); begin += most) {
    const Elements piece = elements.subspan(begin, std::min(most, elements.size() - begin));
    const int code =
        MPI_Allreduce(MPI_IN_PLACE, piece.bytes().data(), static_cast<int>(piece.size()),
                      MpiReductions::type(piece.type()), reductions_->op(piece.type(), op), comm_);
    if (code != MPI_SUCCESS) fail({"MPI_Allreduce: " + mpi_text(code)}, code);
  }
}

}  // namespace

std::unique_ptr<Transport> mpi_transport(MPI_Comm communicator, std::size_t chunk_bytes,
                                         MpiMemory memory, Deadline deadline) {
  return std::make_unique<MpiTransport>(communicator, chunk_bytes, memory, deadline);
}

}  // namespace winnow
