// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A size on the host, and the bytes that travel for it: the size itself, or a copy.
struct SizeWord {
  std::uint64_t* size = nullptr;
  std::span<std::byte> travels = {};
};

// Sizes over a transport that takes only device memory, copied in the order of exec.stream. The
// host's words are in exec.pinned_workspace: a copy to memory that is not page-locked would block
// the host, without a deadline, until the stream has passed it. The words that travel are in
// exec.device_workspace. UsageError if Winnow was built without CUDA.

/// Uninitialised.
SizeWord take_size_word(const Exec& exec);
/// Enqueue a copy. The word must stay until the copy is done.
void copy_to_device(const Exec& exec, const SizeWord& word);
void copy_to_host(const Exec& exec, const SizeWord& word);
/// Likewise of other words, to a copy there, which it returns.
std::span<const std::byte> copy_to_host(const Exec& exec, std::span<const std::byte> bytes);
template <class Word>
std::span<const Word> copy_to_host(const Exec& exec, std::span<const Word> words) {
  const auto copy = copy_to_host(exec, std::as_bytes(words));
  return {reinterpret_cast<const Word*>(copy.data()), words.size()};
}
/// Returns when exec.stream has passed all copies; moves `transport` on meanwhile. CommError at the
/// deadline.
void await_size_words(const Exec& exec, Transport& transport, Deadline deadline);

}  // namespace winnow::comm
