// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/bridge/enqueued.hpp"
#include "kernels/exec/device_scope.hpp"

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

  void abort(std::string_view reason) noexcept override;

 protected:
  using Message = Enqueued;

  explicit Adapter(Transport& inner);
  /// A subset of `parent`, over a subset of its inner transport.
  Adapter(const Adapter& parent, std::unique_ptr<Transport> inner);

  bool failed() const { return failure_->failed(); }
  void expect_usable() const { failure_->expect_usable(); }
  [[noreturn]] void fail(const std::string& why, int code = 0);
  /// Runs `body` with the device current. Anything it throws, except UsageError, makes this
  /// unusable.
  template <class Body>
  auto guarded(const Body& body) {
    try {
      const kernels::DeviceScope scope(device_);
      return body();
    } catch (const CommError& error) {
      failure_->keep(error.what());
      throw;
    } catch (const CudaError& error) {
      fail(error.what(), error.code());
    }
  }
  /// Runs a collective of the inner transport and counts the bytes that it sends.
  template <class Collective>
  void counted(const Collective& collective) {
    const std::uint64_t before = inner_.bytes_sent();
    collective();
    bytes_sent_ += inner_.bytes_sent() - before;
  }

  Transport& inner() const { return inner_; }

 private:
  std::unique_ptr<Transport> owned_;
  Transport& inner_;
  int device_;
};

}  // namespace winnow::comm
