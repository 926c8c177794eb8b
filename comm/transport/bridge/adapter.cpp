// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/bridge/adapter.hpp"

namespace winnow::comm {

Adapter::Adapter(Transport& inner) : inner_(inner), device_(kernels::current_device(Place::cuda)) {}

Adapter::Adapter(const Adapter& parent, std::unique_ptr<Transport> inner)
    : EnqueuingTransport(parent.failure_),
      owned_(std::move(inner)),
      inner_(*owned_),
      device_(parent.device_) {}

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
