// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// Returns each rank's value, by rank, once every rank has called it. For transports of host
/// memory.
template <class Value>
std::vector<Value> gather_values(Transport& transport, const Value& mine, Deadline deadline,
                                 const Exec& exec = {}) {
  std::vector<Value> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather(exec, std::as_bytes(std::span(&mine, 1)),
                       std::as_writable_bytes(std::span(all)), deadline);
  return all;
}

}  // namespace winnow::comm
