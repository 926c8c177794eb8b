// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/staged.hpp"

#include <sched.h>

#include <utility>

#include "comm/adapter.hpp"
#include "comm/expect.hpp"
#include "comm/fifo.hpp"
#include "comm/staging.hpp"
#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/reduce.hpp"

namespace winnow::comm {
namespace {

using kernels::cuda::enqueue_copy;
using kernels::cuda::StreamRef;
using Bytes = std::span<std::byte>;

constexpr unsigned kSpinsBeforeYield = 200;
constexpr std::size_t kAlignment = 64;

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Exec on_host(const Exec& exec) {
  return {.threads = exec.threads, .workspace = exec.workspace};
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

  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override;
  void reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline) override;
  void all_gather(const Exec& exec, std::span<const std::byte> mine, std::span<std::byte> all,
                  Deadline deadline) override;

 private:
  /// What one start sets going. Its block holds its messages one after another; before each that is
  /// received stands a word for its size.
  struct Batch {
    Transport* inner;
    Staging::Block* block;
    std::uint64_t end;    // number of the message after its last
    Ticket inner_ticket;  // once it is handed over
  };

  /// What a transport and its subsets share: theirs below may send over the same channels, so one
  /// order holds for all. Batch n is of ticket n + 1.
  struct UnderWay {
    Staging staging{kernels::cuda::kPinnedMemory};
    // What was received is copied on a stream of its own: behind what the caller enqueued since the
    // start it would wait for that, which may be messages of another transport.
    kernels::cuda::Stream arrivals;
    Fifo<Batch> batches;        // leave from the front by wait
    Fifo<Message> messages;     // of all batches
    std::uint64_t handed = 0;   // number of the first batch that the inner transport does not have
    std::uint64_t started = 0;  // and of its first message
    std::uint64_t delivered = 0;  // number of the first batch that has not come
  };

  static std::size_t room(const Message& message) {
    return (message.is_send ? 0 : kAlignment) + round_up(message.bytes);
  }
  void hand_over();
  void deliver(const Batch& batch);
  void expect_in_time(Deadline deadline);
  template <class Done>
  void poll(Deadline deadline, const Done& done);
  void copy(Bytes to, std::span<const std::byte> from, Staging::Block& block, const Exec& exec,
            Deadline deadline);
  template <class Collective>
  void through_host(const Exec& exec, std::size_t bytes, Deadline deadline,
                    const Collective& collective);

  std::shared_ptr<UnderWay> under_way_;
};

// What is under way may still be read and written, by the transport below and by the device.
StagedTransport::~StagedTransport() {
  Fifo<Batch>& batches = under_way_->batches;
  bool open = failed();
  for (std::uint64_t n = batches.begin(); n != batches.end(); ++n) {
    open |= batches[n].inner == &inner();
  }
  if (!open) return;
  under_way_->staging.abandon();
  if (!failed()) Adapter::abort("a transport ended with messages under way");
}

Ticket StagedTransport::start(const Exec& exec) {
  expect_usable();
  kernels::cuda::expect_device(exec);
  return guarded([&] {
    Fifo<Message>& messages = under_way_->messages;
    std::size_t bytes = 0;
    for (Message& message : enqueued_) {
      message.offset = bytes;
      bytes += room(message);
    }
    Staging::Block& block = under_way_->staging.take(bytes);
    const StreamRef stream(static_cast<cudaStream_t>(exec.stream));
    for (const Message& message : enqueued_) {
      messages.push(message);
      if (!message.is_send) continue;
      enqueue_copy(block.memory.subspan(message.offset, message.bytes),
                   {message.data, message.bytes}, stream);
    }
    enqueued_.clear();
    block.event.record(stream);
    under_way_->batches.push(
        {.inner = &inner(), .block = &block, .end = messages.end(), .inner_ticket = {}});
    const Ticket ticket{under_way_->batches.end()};
    hand_over();
    return ticket;
  });
}

/// Gives the transport below the batches whose copies are there, in order.
void StagedTransport::hand_over() {
  UnderWay& all = *under_way_;
  for (; all.handed != all.batches.end(); ++all.handed) {
    Batch& batch = all.batches[all.handed];
    if (!batch.block->event.passed()) return;
    for (; all.started != batch.end; ++all.started) {
      const Message& message = all.messages[all.started];
      std::byte* const place = batch.block->memory.data() + message.offset;
      if (message.is_send) {
        batch.inner->send({place, message.bytes}, message.peer);
      } else {
        batch.inner->recv({place + kAlignment, message.bytes}, message.peer,
                          reinterpret_cast<std::uint64_t*>(place));
      }
    }
    batch.inner_ticket = batch.inner->start({});
  }
}

/// Enqueues the copies of what has come. The caller's stream has passed what was enqueued there
/// before the start, so the memory is free.
void StagedTransport::deliver(const Batch& batch) {
  const StreamRef stream = under_way_->arrivals;
  for (Fifo<Message>& messages = under_way_->messages; messages.begin() != batch.end;
       messages.pop()) {
    const Message& message = messages.front();
    if (message.is_send) continue;
    const std::byte* const place = batch.block->memory.data() + message.offset;
    const std::uint64_t bytes = *reinterpret_cast<const std::uint64_t*>(place);
    enqueue_copy(Bytes(message.data, bytes), {place + kAlignment, bytes}, stream);
    if (message.message_bytes != nullptr) *message.message_bytes = bytes;
  }
  batch.block->event.record(stream);
}

void StagedTransport::expect_in_time(Deadline deadline) {
  inner().progress();
  if (deadline.passed()) {
    fail("the deadline passed while it waited for copies between the host and the device");
  }
}

/// Moves everything on until `done`.
template <class Done>
void StagedTransport::poll(Deadline deadline, const Done& done) {
  for (unsigned spins = 0;; ++spins) {
    hand_over();
    if (done()) return;
    expect_in_time(deadline);
    if (spins >= kSpinsBeforeYield) ::sched_yield();
  }
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
  WINNOW_EXPECTS(ticket.number <= all.batches.end(),
                 "wait for ticket " + std::to_string(ticket.number) + " of " +
                     std::to_string(all.batches.end()) + " started");
  return guarded([&] {
    hand_over();
    const auto copies_go_on = [&] {
      expect_in_time(deadline);
      return false;
    };
    for (; all.delivered < ticket.number; ++all.delivered) {
      if (all.delivered == all.handed) return copies_go_on();
      const Batch& batch = all.batches[all.delivered];
      if (!batch.inner->test(batch.inner_ticket, deadline)) return false;
      deliver(batch);
    }
    for (; all.batches.begin() < ticket.number; all.batches.pop()) {
      Staging::Block& block = *all.batches.front().block;
      if (!block.event.passed()) return copies_go_on();
      Staging::give_back(block);
    }
    return true;
  });
}

void StagedTransport::wait(Ticket ticket, Deadline deadline) {
  expect_usable();
  if (ticket.number > under_way_->batches.begin()) {
    // One below whose test blocks would keep what was started later from going.
    guarded([&] {
      poll(deadline, [this] { return under_way_->handed == under_way_->batches.end(); });
    });
  }
  for (unsigned spins = 0; !test(ticket, deadline); ++spins) {
    if (spins >= kSpinsBeforeYield) ::sched_yield();
  }
}

std::unique_ptr<Transport> StagedTransport::subset(std::span<const int> ranks) {
  expect_usable();
  return std::make_unique<StagedTransport>(*this, inner().subset(ranks));
}

void StagedTransport::copy(Bytes to, std::span<const std::byte> from, Staging::Block& block,
                           const Exec& exec, Deadline deadline) {
  const StreamRef stream(static_cast<cudaStream_t>(exec.stream));
  enqueue_copy(to, from, stream);
  block.event.record(stream);
  poll(deadline, [&] { return block.event.passed(); });
}

/// Runs `collective` on host memory, after all messages that were started.
template <class Collective>
void StagedTransport::through_host(const Exec& exec, std::size_t bytes, Deadline deadline,
                                   const Collective& collective) {
  guarded([&] {
    poll(deadline, [this] { return under_way_->handed == under_way_->batches.end(); });
    struct Loan {
      Staging::Block& block;
      ~Loan() { Staging::give_back(block); }
    };
    const Loan loan{under_way_->staging.take(bytes)};
    collective(loan.block, [&](Bytes to, std::span<const std::byte> from) {
      copy(to, from, loan.block, exec, deadline);
    });
  });
}

void StagedTransport::all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                                 Deadline deadline) {
  kernels::expect_reducible(elements.type(), op);
  expect_usable();
  kernels::cuda::expect_device(exec);
  const Bytes device = elements.bytes();
  if (device.empty() || size() == 1) return;
  through_host(exec, device.size(), deadline, [&](Staging::Block& block, const auto& copy_now) {
    const Bytes host = block.memory.first(device.size());
    copy_now(host, device);
    counted([&] {
      inner().all_reduce(on_host(exec), {host.data(), elements.size(), elements.type()}, op,
                         deadline);
    });
    copy_now(device, host);
  });
}

void StagedTransport::reduce_scatter(const Exec& exec, std::span<float> elements,
                                     Deadline deadline) {
  expect_usable();
  kernels::cuda::expect_device(exec);
  const Bytes device = std::as_writable_bytes(elements);
  if (device.empty() || size() == 1) return;
  through_host(exec, device.size(), deadline, [&](Staging::Block& block, const auto& copy_now) {
    const Bytes host = block.memory.first(device.size());
    copy_now(host, device);
    counted([&] {
      inner().reduce_scatter(on_host(exec),
                             {reinterpret_cast<float*>(host.data()), elements.size()}, deadline);
    });
    const Chunk own = ring_chunk(elements.size(), rank(), size());
    const std::size_t begin = own.begin * sizeof(float), bytes = own.end * sizeof(float) - begin;
    copy_now(device.subspan(begin, bytes), host.subspan(begin, bytes));
  });
}

void StagedTransport::all_gather(const Exec& exec, std::span<const std::byte> mine,
                                 std::span<std::byte> all, Deadline deadline) {
  expect_gatherable(mine.size(), all.size(), size());
  expect_usable();
  kernels::cuda::expect_device(exec);
  if (mine.empty()) return;
  through_host(exec, all.size(), deadline, [&](Staging::Block& block, const auto& copy_now) {
    const Bytes host = block.memory.first(all.size());
    const Bytes own = host.subspan(static_cast<std::size_t>(rank()) * mine.size(), mine.size());
    copy_now(own, mine);
    counted([&] { inner().all_gather(on_host(exec), own, host, deadline); });
    copy_now(all, host);
  });
}

}  // namespace

std::unique_ptr<Transport> staged(Transport& inner) {
  WINNOW_EXPECTS(inner.takes(Place::cpu), "staged: the transport below must take host memory");
  return std::make_unique<StagedTransport>(inner);
}

}  // namespace winnow::comm
