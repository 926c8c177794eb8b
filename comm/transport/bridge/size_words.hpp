// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A size on the host, and the bytes that travel for it: the same, or a copy.
struct SizeWord {
  std::uint64_t* size = nullptr;
  std::span<std::byte> travels = {};
};

// Sizes over a transport that takes device memory alone, copied in the order of exec.stream: those
// of the host in exec.pinned_workspace, for a copy to memory that is not page-locked would keep the
// host until the stream has passed it, without a deadline; what travels in exec.device_workspace.
// UsageError where Winnow was built without CUDA.

/// Uninitialised.
SizeWord take_size_word(const Exec& exec);
/// Enqueue a copy; the word stays until it is done.
void copy_to_device(const Exec& exec, const SizeWord& word);
void copy_to_host(const Exec& exec, const SizeWord& word);
/// Returns when exec.stream has passed all copies; moves `transport` on meanwhile. CommError at the
/// deadline.
void await_size_words(const Exec& exec, Transport& transport, Deadline deadline);

}  // namespace winnow::comm
