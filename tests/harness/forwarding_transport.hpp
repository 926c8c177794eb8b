// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

namespace winnow::tests {

/// Forwards to another transport, for tests that change or watch traffic. Collectives are the base
/// class's, over this transport's send and recv.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {
    sends_over(*inner_);
  }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int node() const override { return inner_->node(); }
  bool takes(Place place) const override { return inner_->takes(place); }
  bool sizes_travel() const override { return inner_->sizes_travel(); }
  bool allows_threads() const override { return inner_->allows_threads(); }
  void send(std::span<const std::byte> message, int peer) override {
    inner_->send(message, peer);
    bytes_sent_ += message.size();
  }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* bytes) override {
    inner_->recv(buffer, peer, bytes);
  }
  Ticket start(const Exec& exec) override { return inner_->start(exec); }
  void wait(Ticket ticket, Deadline deadline) override { inner_->wait(ticket, deadline); }
  bool test(Ticket ticket, Deadline deadline) override { return inner_->test(ticket, deadline); }
  void progress() override { inner_->progress(); }
  void abort(std::string_view reason, FailureKind kind) noexcept override {
    inner_->abort(reason, kind);
  }
  MemoryRegistrar registrar() override { return inner_->registrar(); }

 protected:
  const std::shared_ptr<Transport>& inner() const { return inner_; }

 private:
  std::shared_ptr<Transport> inner_;
};

/// Claims a native allreduce, and counts its calls.
class NativeTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  bool native_all_reduce() const override { return true; }
  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override {
    ++calls;
    Transport::all_reduce(exec, elements, op, deadline);
  }

  std::size_t calls = 0;
};

/// Returns on rank 0 when all ranks have called it, before the test makes rank 0 fail alone.
inline void tell_rank_0(Transport& transport) {
  std::byte word{};
  const Exec exec;
  if (transport.rank() != 0) transport.send({&word, 1}, 0);
  for (int peer = 1; transport.rank() == 0 && peer < transport.size(); ++peer) {
    transport.recv({&word, 1}, peer, nullptr);
  }
  try {
    transport.wait(transport.start(exec), Deadline::after(std::chrono::seconds(60)));
  } catch (const CommError&) {
    // Rank 0 has gone on and failed as intended; this rank's next call shows it.
  }
}

}  // namespace winnow::tests
