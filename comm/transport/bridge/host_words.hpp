// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

namespace winnow::comm {

// Words of a device that a host reads within a call, copied in the order of exec.stream. Copies are
// in exec.pinned_workspace: a copy to memory that is not page-locked would block the host, without
// a deadline, until the stream has passed it. UsageError if Winnow was built without CUDA.

/// Enqueues a copy of words in device memory, and returns where it will be.
std::span<const std::byte> copy_to_host(const Exec& exec, std::span<const std::byte> bytes);
template <class Word>
std::span<const Word> copy_to_host(const Exec& exec, std::span<const Word> words) {
  const auto copy = copy_to_host(exec, std::as_bytes(words));
  return {reinterpret_cast<const Word*>(copy.data()), words.size()};
}
/// Returns when exec.stream has passed all copies; moves `transport` on meanwhile. CommError at the
/// deadline.
void await_words(const Exec& exec, Transport& transport, Deadline deadline);

}  // namespace winnow::comm
