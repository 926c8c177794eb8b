// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/bridge/host_messages.hpp"

#include <utility>

#include "comm/transport/bridge/adapter.hpp"
#include "comm/transport/bridge/staging.hpp"
#include "comm/transport/ticket_queue.hpp"
#include "kernels/cuda/memory.hpp"

namespace winnow::comm {
namespace {

using kernels::cuda::enqueue_copy;
using kernels::cuda::Stream;
using kernels::cuda::StreamRef;
using Bytes = std::span<std::byte>;

class HostMessages final : public Adapter {
 public:
  HostMessages(Transport& inner, int priority)
      : Adapter(inner), stream_(priority), copies_(priority) {}
  HostMessages(const HostMessages& parent, std::unique_ptr<Transport> inner)
      : Adapter(parent, std::move(inner)),
        stream_(parent.stream_.priority()),
        copies_(parent.copies_.priority()) {}
  ~HostMessages() override;

  Ticket start(const Exec& exec) override;
  void wait(Ticket ticket, Deadline deadline) override;
  void progress() override;
  std::unique_ptr<Transport> subset(std::span<const int> ranks) override;

 private:
  /// One start.
  struct Batch {
    Staging::Block* block;
    std::vector<Enqueued> messages;
    std::vector<std::uint64_t> sizes;  // received bytes, by message
    Ticket inner_ticket;
  };

  void copy(Bytes to, std::span<const std::byte> from) const;
  void carry(const Collective& collective) override;
  Exec on_device(const Exec& exec) const {
    return {.place = Place::cuda, .stream = stream_.get(), .workspace = exec.workspace};
  }

  Staging staging_{kernels::cuda::kDeviceMemory};
  TicketQueue<Batch> batches_;
  // Copies have their own stream: behind a later start's messages they would wait for peers,
  // without a deadline.
  Stream stream_, copies_;
};

HostMessages::~HostMessages() {
  if (!failed() && batches_.empty()) return;
  staging_.abandon();
  if (!failed())
    Adapter::abort("a transport ended with messages under way", FailureKind::environment);
}

void HostMessages::copy(Bytes to, std::span<const std::byte> from) const {
  if (to.empty()) return;
  enqueue_copy(to, from, copies_);
  copies_.synchronize();
}

Ticket HostMessages::start(const Exec&) {
  expect_usable();
  return guarded([&] {
    constexpr std::size_t kAlignment = 256;
    std::size_t bytes = 0;
    for (Enqueued& message : enqueued_) {
      message.offset = bytes;
      bytes += (message.bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    Batch& batch = batches_.extend();
    batch.block = &staging_.take(bytes);
    batch.messages.clear();
    std::swap(batch.messages, enqueued_);
    batch.sizes.assign(batch.messages.size(), 0);
    for (std::size_t i = 0; i < batch.messages.size(); ++i) {
      const Enqueued& message = batch.messages[i];
      const Bytes place = batch.block->memory.subspan(message.offset, message.bytes);
      if (message.is_send) {
        copy(place, {message.data, message.bytes});
        inner().send(place, message.peer);
      } else {
        inner().recv(place, message.peer, &batch.sizes[i]);
      }
    }
    batch.inner_ticket = inner().start(on_device({}));
    return Ticket{batches_.last()};
  });
}

void HostMessages::wait(Ticket ticket, Deadline deadline) {
  expect_usable();
  batches_.expect_started(ticket);
  const auto complete = [&](const Batch& batch) {
    inner().wait(batch.inner_ticket, deadline);
    for (std::size_t i = 0; i < batch.messages.size(); ++i) {
      const Enqueued& message = batch.messages[i];
      if (message.is_send) continue;
      copy({message.data, batch.sizes[i]},
           batch.block->memory.subspan(message.offset, batch.sizes[i]));
      if (message.message_bytes != nullptr) *message.message_bytes = batch.sizes[i];
    }
    Staging::give_back(*batch.block);
    return true;
  };
  guarded([&] { batches_.retire(ticket.number, complete); });
}

void HostMessages::progress() {
  if (failed()) return;
  guarded([this] { inner().progress(); });
}

std::unique_ptr<Transport> HostMessages::subset(std::span<const int> ranks) {
  expect_usable();
  auto part = inner().subset(ranks);  // ranks that failed in it may go on
  return guarded([&] { return std::make_unique<HostMessages>(*this, std::move(part)); });
}

void HostMessages::carry(const Collective& collective) {
  expect_usable();
  if (collective.bytes == 0) return;
  guarded([&] {
    const Staging::Loan loan{staging_.take(collective.bytes)};
    const Bytes device = loan.block.memory.first(collective.bytes);
    copy(device.subspan(collective.from_begin, collective.from.size()), collective.from);
    run_counted(collective, on_device(collective.exec), device);
    // It ends on the stream.
    inner().wait(inner().start(on_device({})), collective.deadline);
    copy(collective.to, device.subspan(collective.to_begin, collective.to.size()));
  });
}

}  // namespace

std::unique_ptr<Transport> host_messages(Transport& inner, void* beside) {
  WINNOW_EXPECTS(inner.takes(Place::cuda),
                 "host_messages: the transport below must take a device's memory");
  return std::make_unique<HostMessages>(inner,
                                        StreamRef(static_cast<cudaStream_t>(beside)).priority());
}

}  // namespace winnow::comm
