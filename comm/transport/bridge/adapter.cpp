// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/bridge/adapter.hpp"

#include "comm/transport/expect.hpp"

namespace winnow::comm {

Adapter::Adapter(Transport& inner)
    : inner_(inner),
      device_(kernels::current_device(Place::cuda)),
      failure_(std::make_shared<FailureLatch>()) {}

Adapter::Adapter(const Adapter& parent, std::unique_ptr<Transport> inner)
    : owned_(std::move(inner)),
      inner_(*owned_),
      device_(parent.device_),
      failure_(parent.failure_) {}

void Adapter::send(std::span<const std::byte> message, int peer) {
  expect_peer(peer, rank(), size());
  expect_usable();
  enqueued_.push_back(Message::sent(message, peer));
  bytes_sent_ += message.size();
}

void Adapter::recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) {
  expect_peer(peer, rank(), size());
  expect_usable();
  enqueued_.push_back(Message::received(buffer, peer, message_bytes));
}

void Adapter::fail(const std::string& why, int code) {
  failure_->keep("rank " + std::to_string(rank()) + ": " + why);
  inner_.abort(why);
  throw CommError(failure_->why(), code);
}

void Adapter::abort(std::string_view reason) noexcept {
  failure_->keep(abort_text(reason));
  inner_.abort(reason);
}

}  // namespace winnow::comm
