// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/bridge/enqueued.hpp"
#include "comm/transport/expect.hpp"
#include "kernels/exec/device_scope.hpp"
#include "kernels/reduce.hpp"

namespace winnow::comm {

/// A transport for one memory, the host's or the current device's, over a transport for the other:
/// the part that both kinds share. It fails when the inner one fails; a CUDA failure makes both
/// unusable, as a CommError. A subset fails together with its parent.
class Adapter : public EnqueuingTransport {
 public:
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int node() const override { return inner_.node(); }
  bool sizes_travel() const override { return inner_.sizes_travel(); }
  bool allows_threads() const override { return inner_.allows_threads(); }
  bool native_all_reduce() const override { return inner_.native_all_reduce(); }

  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override {
    kernels::expect_reducible(elements.type(), op);
    expect_memory(elements);
    const auto run = [&](const Exec& inner_exec, std::span<std::byte> copy) {
      inner_.all_reduce(inner_exec, {copy.data(), elements.size(), elements.type()}, op, deadline);
    };
    const std::span<std::byte> all = elements.bytes();
    carry({exec, deadline, size() == 1 ? 0 : all.size(), all, 0, all, 0, std::ref(run)});
  }
  void reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline) override {
    expect_memory(Elements(elements));
    const auto run = [&](const Exec& inner_exec, std::span<std::byte> copy) {
      float* const memory = reinterpret_cast<float*>(copy.data());
      inner_.reduce_scatter(inner_exec, {memory, elements.size()}, deadline);
    };
    const Chunk own = ring_chunk(elements.size(), rank(), size());
    const std::span<std::byte> all = std::as_writable_bytes(elements);
    carry({exec, deadline, size() == 1 ? 0 : all.size(), all, 0,
           std::as_writable_bytes(elements.subspan(own.begin, own.end - own.begin)),
           own.begin * sizeof(float), std::ref(run)});
  }
  void all_gather(const Exec& exec, std::span<const std::byte> mine, std::span<std::byte> all,
                  Deadline deadline) override {
    expect_gatherable(mine.size(), all.size(), size());
    expect_memory(mine);
    expect_memory(all);
    const std::size_t begin = static_cast<std::size_t>(rank()) * mine.size();
    const auto run = [&](const Exec& inner_exec, std::span<std::byte> copy) {
      inner_.all_gather(inner_exec, copy.subspan(begin, mine.size()), copy, deadline);
    };
    carry({exec, deadline, all.size(), mine, begin, all, 0, std::ref(run)});
  }

  void abort(std::string_view reason, FailureKind kind) noexcept override {
    failure_->keep(aborted_here(reason, kind));
    inner_.abort(reason, kind);
  }

 protected:
  explicit Adapter(Transport& inner)
      : inner_(inner), device_(kernels::current_device(Place::cuda)) {
    sends_over(inner);
  }
  /// A subset of `parent`, over a subset of its inner transport.
  Adapter(const Adapter& parent, std::unique_ptr<Transport> inner)
      : EnqueuingTransport(parent.failure_),
        owned_(std::move(inner)),
        inner_(*owned_),
        device_(parent.device_) {
    sends_over(inner_);
  }

  bool failed() const { return failure_->failed(); }
  void expect_usable() const { failure_->expect_usable(); }
  [[noreturn]] void fail(const Failure& why, int code = 0) {
    failure_->keep(of_rank(rank(), why));
    inner_.abort(why.text, why.kind);
    failure_->fail(code);
  }
  /// Runs `body` with the device current. Anything it throws, except UsageError, makes this
  /// unusable.
  template <class Body>
  auto guarded(const Body& body) {
    try {
      const kernels::DeviceScope scope(device_);
      return body();
    } catch (const CommError& error) {
      failure_->keep(failure_of(error));
      throw;
    } catch (const CudaError& error) {
      fail(failure_of(error), error.code());
    }
  }
  /// A collective of the inner transport, on a copy of the elements in its memory.
  struct Collective {
    const Exec& exec;
    Deadline deadline;
    std::size_t bytes;  ///< of the copy; 0: there is nothing to do
    std::span<const std::byte> from;
    std::size_t from_begin;  ///< where in the copy they go
    std::span<std::byte> to;
    std::size_t to_begin;  ///< where in the copy they come from
    std::function<void(const Exec& inner_exec, std::span<std::byte> copy)> run;
  };
  /// Checks collective.exec; copies in, runs the collective, and copies out.
  virtual void carry(const Collective& collective) = 0;
  /// Runs the collective and counts the bytes that it sends.
  void run_counted(const Collective& collective, const Exec& inner_exec,
                   std::span<std::byte> copy) {
    const std::uint64_t before = inner_.bytes_sent();
    collective.run(inner_exec, copy);
    bytes_sent_ += inner_.bytes_sent() - before;
  }

  Transport& inner() const { return inner_; }

 private:
  std::unique_ptr<Transport> owned_;
  Transport& inner_;
  int device_;
};

}  // namespace winnow::comm
