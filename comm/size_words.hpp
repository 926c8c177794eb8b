// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

namespace winnow::comm {

// Sizes as they travel over a transport that takes device memory alone: each word has a place in
// exec.device_workspace, and is copied in the order of exec.stream. UsageError where Winnow was
// built without CUDA.

/// Room for a word, uninitialised.
std::span<std::byte> take_size_word(const Exec& exec);
/// Enqueues a copy between the host's word and the device's, either way; both stay until it is
/// done.
void copy_size_word(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);
/// Returns when exec.stream has passed all copies; moves `transport` on meanwhile. CommError at the
/// deadline.
void await_size_words(const Exec& exec, Transport& transport, Deadline deadline);

}  // namespace winnow::comm
