// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/bridge/staged.hpp"

#include <memory>
#include <utility>

#include "comm/transport/bridge/adapter.hpp"
#include "comm/transport/bridge/staging.hpp"
#include "comm/transport/fifo.hpp"
#include "comm/transport/growing.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/ticket_queue.hpp"
#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/memory.hpp"

namespace winnow::comm {
namespace {

using kernels::cuda::enqueue_copy;
using kernels::cuda::StreamRef;
using Bytes = std::span<std::byte>;

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kChunk = std::uint64_t{1} << 20;  // bytes of a copy, if messages can grow

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class StagedTransport final : public Adapter {
 public:
  explicit StagedTransport(Transport& inner)
      : Adapter(inner), under_way_(std::make_shared<UnderWay>()) {}
  StagedTransport(const StagedTransport& parent, std::unique_ptr<Transport> inner)
      : Adapter(parent, std::move(inner)), under_way_(parent.under_way_) {}
  ~StagedTransport() override;

  bool takes(Place place) const override { return place == Place::cuda; }
  Ticket start(const Exec& exec) override;
  void wait(Ticket ticket, Deadline deadline) override;
  bool test(Ticket ticket, Deadline deadline) override;
  void progress() override;
  std::unique_ptr<Transport> subset(std::span<const int> ranks) override;

 private:
  /// One start. Its block holds its messages one after another, each behind its Known; its event
  /// follows the first chunk of each outgoing message.
  struct Batch {
    Transport* inner;
    GrowingMessages* growing;  // the same transport, or null if it cannot do that
    Staging::Block* block;
    std::uint64_t end;    // number of the message after its last
    Ticket inner_ticket;  // once it is handed over
  };
  struct Known {
    std::uint64_t message_bytes;  // of a received message, once it has arrived
    std::uint64_t moved;          // bytes ready to be sent, or received
    std::uint64_t copied;         // received bytes copied to the device
  };
  static_assert(sizeof(Known) <= kAlignment);
  /// A further chunk of an outgoing message, on its way to the host.
  struct Mark {
    std::unique_ptr<kernels::cuda::Event> copied;  // stays with the slot
    Known* known = nullptr;
    std::uint64_t moved = 0;
  };

  /// State shared by a transport and its subsets: the inner ones may send over the same channels,
  /// so one order holds for all.
  struct UnderWay {
    Staging staging{kernels::cuda::kPinnedMemory};
    // Received messages are copied on a separate stream: behind what the caller has enqueued since
    // the start they would wait for that, which may be messages of another transport. It is made in
    // the first start, with the priority of the stream there.
    std::unique_ptr<kernels::cuda::Stream> arrivals;
    TicketQueue<Batch> batches;
    Fifo<Enqueued> messages;      // of all batches
    std::uint64_t handed = 0;     // the last ticket handed to the inner transport
    std::uint64_t started = 0;    // number of the message after its last
    std::uint64_t delivered = 0;  // the last ticket that has arrived
    Fifo<Mark> marks;             // of further chunks, in the order of their copies
  };

  static Known& known(const Batch& batch, const Enqueued& message) {
    return *reinterpret_cast<Known*>(batch.block->memory.data() + message.offset);
  }
  static Bytes place(const Batch& batch, const Enqueued& message) {
    return batch.block->memory.subspan(message.offset + kAlignment, message.bytes);
  }
  std::size_t lay_out();
  void copy_out(const Batch& batch, StreamRef stream);
  bool all_handed() const { return under_way_->handed == under_way_->batches.last(); }
  bool has_copied() const { return all_handed() && under_way_->marks.empty(); }
  void hand_over();
  void hand_over(const Batch& batch, const Enqueued& message);
  void copy_in(const Batch& batch, const Enqueued& message, std::uint64_t end);
  void deliver_chunks(const Batch& batch);
  void deliver(const Batch& batch);
  void expect_in_time(Deadline deadline);
  template <class Done>
  void poll(Deadline deadline, const Done& done);
  void carry(const Collective& collective) override;

  std::shared_ptr<UnderWay> under_way_;
};

// The inner transport and the device may still access what is under way.
StagedTransport::~StagedTransport() {
  TicketQueue<Batch>& batches = under_way_->batches;
  bool open = failed();
  for (std::uint64_t n = batches.completed(); n != batches.last(); ++n) {
    open |= batches[n + 1].inner == &inner();
  }
  if (!open) return;
  under_way_->staging.abandon();
  if (!failed())
    Adapter::abort("a transport ended with messages under way", FailureKind::environment);
}

Ticket StagedTransport::start(const Exec& exec) {
  expect_usable();
  kernels::cuda::expect_device(exec);
  return guarded([&] {
    const StreamRef stream(static_cast<cudaStream_t>(exec.stream));
    if (under_way_->arrivals == nullptr) {
      under_way_->arrivals = std::make_unique<kernels::cuda::Stream>(stream.priority());
    }
    Staging::Block& block = under_way_->staging.take(lay_out());
    for (const Enqueued& message : enqueued_) under_way_->messages.push(message);
    const Ticket ticket =
        under_way_->batches.push({.inner = &inner(),
                                  .growing = dynamic_cast<GrowingMessages*>(&inner()),
                                  .block = &block,
                                  .end = under_way_->messages.end(),
                                  .inner_ticket = {}});
    copy_out(under_way_->batches[ticket.number], stream);
    enqueued_.clear();
    hand_over();
    return ticket;
  });
}

/// Places every message in the block; returns the block's bytes. Consecutive sends of one message
/// to several peers share a place.
std::size_t StagedTransport::lay_out() {
  std::size_t bytes = 0;
  const Enqueued* sent = nullptr;
  for (Enqueued& message : enqueued_) {
    message.offset = bytes;
    if (message.is_send) {
      if (sent != nullptr && sent->data == message.data && sent->bytes == message.bytes) {
        message.offset = sent->offset;
        continue;
      }
      sent = &message;
    }
    bytes += kAlignment + round_up(message.bytes);
  }
  return bytes;
}

/// Enqueues the copies of outgoing messages: first one chunk of each, after which the batch may go,
/// then the rest.
void StagedTransport::copy_out(const Batch& batch, StreamRef stream) {
  const auto chunk_at = [&](const Enqueued& message, std::uint64_t at) {
    const std::uint64_t most = batch.growing != nullptr ? kChunk : message.bytes;
    const std::uint64_t bytes = std::min(most, message.bytes - at);
    enqueue_copy(place(batch, message).subspan(at, bytes),
                 std::span<const std::byte>(message.data + at, bytes), stream);
    return at + bytes;
  };
  const auto each_once = [&](const auto& body) {
    const Enqueued* last = nullptr;
    for (const Enqueued& message : enqueued_) {
      if (message.is_send && last != nullptr && last->offset == message.offset) continue;
      if (message.is_send) last = &message;
      body(message);
    }
  };
  each_once([&](const Enqueued& message) {
    known(batch, message) = {};
    if (message.is_send) known(batch, message).moved = chunk_at(message, 0);
  });
  batch.block->event.record(stream);
  each_once([&](const Enqueued& message) {
    if (!message.is_send) return;
    for (std::uint64_t at = known(batch, message).moved; at < message.bytes;) {
      at = chunk_at(message, at);
      Fifo<Mark>& marks = under_way_->marks;
      marks.extend();
      Mark& mark = marks[marks.end() - 1];
      if (mark.copied == nullptr) mark.copied = std::make_unique<kernels::cuda::Event>();
      mark.copied->record(stream);
      mark.known = &known(batch, message);
      mark.moved = at;
    }
  });
}

/// Hands the inner transport what is ready: further chunks, and batches in order.
void StagedTransport::hand_over() {
  UnderWay& all = *under_way_;
  for (; !all.marks.empty() && all.marks.front().copied->passed(); all.marks.pop()) {
    all.marks.front().known->moved = all.marks.front().moved;
  }
  for (; !all_handed(); ++all.handed) {
    Batch& batch = all.batches[all.handed + 1];
    if (!batch.block->event.passed()) return;
    for (; all.started != batch.end; ++all.started) hand_over(batch, all.messages[all.started]);
    batch.inner_ticket = batch.inner->start({});
  }
}

void StagedTransport::hand_over(const Batch& batch, const Enqueued& message) {
  Known& said = known(batch, message);
  const Bytes memory = place(batch, message);
  const bool grows = batch.growing != nullptr && message.bytes > kChunk;
  if (message.is_send && grows) {
    batch.growing->send_growing(memory, message.peer, &said.moved);
  } else if (message.is_send) {
    batch.inner->send(memory, message.peer);
  } else if (grows) {
    batch.growing->recv_growing(memory, message.peer, &said.message_bytes, &said.moved);
  } else {
    batch.inner->recv(memory, message.peer, &said.message_bytes);
  }
}

/// Enqueues the copy of a message up to `end`. The caller's stream has passed what was enqueued
/// there before the start, so the memory is free.
void StagedTransport::copy_in(const Batch& batch, const Enqueued& message, std::uint64_t end) {
  std::uint64_t& begin = known(batch, message).copied;
  enqueue_copy(Bytes(message.data + begin, end - begin),
               place(batch, message).subspan(begin, end - begin), *under_way_->arrivals);
  begin = end;
}

/// Delivers the whole chunks that have arrived of an unfinished batch.
void StagedTransport::deliver_chunks(const Batch& batch) {
  const Fifo<Enqueued>& messages = under_way_->messages;
  for (std::uint64_t n = messages.begin(); batch.growing != nullptr && n != batch.end; ++n) {
    const Enqueued& message = messages[n];
    if (message.is_send || message.bytes <= kChunk) continue;
    const std::uint64_t end = known(batch, message).moved / kChunk * kChunk;
    if (end > known(batch, message).copied) copy_in(batch, message, end);
  }
}

/// Enqueues the remaining copies of a batch that has arrived.
void StagedTransport::deliver(const Batch& batch) {
  for (Fifo<Enqueued>& messages = under_way_->messages; messages.begin() != batch.end;
       messages.pop()) {
    const Enqueued& message = messages.front();
    if (message.is_send) continue;
    const std::uint64_t bytes = known(batch, message).message_bytes;
    copy_in(batch, message, bytes);
    if (message.message_bytes != nullptr) *message.message_bytes = bytes;
  }
  batch.block->event.record(*under_way_->arrivals);
}

void StagedTransport::expect_in_time(Deadline deadline) {
  inner().progress();
  if (deadline.passed()) {
    fail(missed_deadline("while it waited for copies between the host and the device"));
  }
}

/// Makes progress until `done`.
template <class Done>
void StagedTransport::poll(Deadline deadline, const Done& done) {
  spin_until([&] {
    hand_over();
    if (done()) return true;
    expect_in_time(deadline);
    return false;
  });
}

void StagedTransport::progress() {
  if (failed()) return;
  guarded([this] {
    hand_over();
    inner().progress();
  });
}

bool StagedTransport::test(Ticket ticket, Deadline deadline) {
  expect_usable();
  UnderWay& all = *under_way_;
  all.batches.expect_started(ticket);
  return guarded([&] {
    hand_over();
    const auto copies_go_on = [&] {
      expect_in_time(deadline);
      return false;
    };
    for (; all.delivered < ticket.number; ++all.delivered) {
      if (all.delivered == all.handed) return copies_go_on();
      const Batch& batch = all.batches[all.delivered + 1];
      if (!batch.inner->test(batch.inner_ticket, deadline)) {
        deliver_chunks(batch);
        return false;
      }
      deliver(batch);
    }
    const auto gives_back = [](const Batch& batch) {
      if (!batch.block->event.passed()) return false;
      Staging::give_back(*batch.block);
      return true;
    };
    return all.batches.retire(ticket.number, gives_back) || copies_go_on();
  });
}

void StagedTransport::wait(Ticket ticket, Deadline deadline) {
  expect_usable();
  if (ticket.number > under_way_->batches.completed()) {
    // If the inner test blocks, nothing started later would move.
    guarded([&] { poll(deadline, [this] { return all_handed(); }); });
  }
  spin_until([&] { return test(ticket, deadline); });
}

std::unique_ptr<Transport> StagedTransport::subset(std::span<const int> ranks) {
  expect_usable();
  return std::make_unique<StagedTransport>(*this, inner().subset(ranks));
}

/// In host memory, after all started messages.
void StagedTransport::carry(const Collective& collective) {
  const Exec& exec = collective.exec;
  expect_usable();
  kernels::cuda::expect_device(exec);
  if (collective.bytes == 0) return;
  const StreamRef stream(static_cast<cudaStream_t>(exec.stream));
  const auto copy = [&](Staging::Block& block, Bytes into, std::span<const std::byte> source) {
    enqueue_copy(into, source, stream);
    block.event.record(stream);
    poll(collective.deadline, [&] { return block.event.passed(); });
  };
  guarded([&] {
    poll(collective.deadline, [this] { return has_copied(); });
    const Staging::Loan loan{under_way_->staging.take(collective.bytes)};
    const Bytes host = loan.block.memory.first(collective.bytes);
    copy(loan.block, host.subspan(collective.from_begin, collective.from.size()), collective.from);
    run_counted(collective, {.threads = exec.threads, .workspace = exec.workspace}, host);
    copy(loan.block, collective.to, host.subspan(collective.to_begin, collective.to.size()));
  });
}

}  // namespace

std::unique_ptr<Transport> staged(Transport& inner) {
  WINNOW_EXPECTS(inner.takes(Place::host), "staged: the transport below must take host memory");
  return std::make_unique<StagedTransport>(inner);
}

}  // namespace winnow::comm
