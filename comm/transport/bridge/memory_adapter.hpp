// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

#include "comm/transport/bridge/host_messages.hpp"
#include "comm/transport/bridge/staged.hpp"

namespace winnow::comm {

/// The transport for messages in the memory of a place: the given one, which outlives this, or an
/// adapter over it. `stream`: the stream of device buckets, or null.
class MemoryAdapter {
 public:
  MemoryAdapter(Transport& transport, Place place, void* stream = nullptr) : transport_(transport) {
    if (transport.takes(place)) return;
    adapter_ = place == Place::cuda ? staged(transport) : host_messages(transport, stream);
  }
  Transport& transport() const { return adapter_ == nullptr ? transport_ : *adapter_; }

 private:
  Transport& transport_;
  std::unique_ptr<Transport> adapter_;
};

}  // namespace winnow::comm
