// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// Returns once every rank has called it. For transports of host memory.
inline void await_all(Transport& transport, Deadline deadline) {
  const std::byte mine{};
  std::vector<std::byte> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather({}, {&mine, 1}, all, deadline);
}

}  // namespace winnow::comm
