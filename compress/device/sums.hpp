// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"

namespace winnow::compress {

// Sums of what owners own, of parts in device memory. Memory as in device_owned.hpp.

/// Compressor::encode_sums of a compressor that keeps some elements, and of one that keeps all.
/// Where Part::any_k, waits for the device.
std::span<std::byte> encode_selected_sums(const Exec& exec, const Codings& codings,
                                          const EncodeJob& job,
                                          std::span<const MessageView> contributions, Owned& owned,
                                          std::span<std::byte> out);
std::span<std::byte> encode_all_sums(const Exec& exec, const Codings& codings, const EncodeJob& job,
                                     std::span<const MessageView> contributions, Owned& owned,
                                     std::span<std::byte> out);

/// write_sums of owners' messages: elements that no list names become 0. Ends with a wait.
bool write_sums_on_device(const Exec& exec, const Part& part, const Outcome& outcome);

}  // namespace winnow::compress
