// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::compress {

// Parts in device memory whose positions have owners: what a Compressor does with them. Work is
// enqueued on exec.stream; scratch is of exec.device_workspace and what the host lists of
// exec.workspace. What Outbox::owned and Owned name lies in device memory too.

/// A list of the host as kernels::place makes it known to the device: there.
template <class T>
std::span<const T> upload(const Exec& exec, std::span<T> list) {
  return {kernels::place(exec, std::span<const T>(list)).there, list.size()};
}

/// Compressor::encode of a compressor that keeps some elements. Waits for the device, for each
/// message's k is up to the support.
void encode_selected_by_owner(const Exec& exec, const Codings& codings, const EncodeJob& job,
                              Outbox& out);
/// That of one that keeps every element.
void encode_everything_by_owner(const Exec& exec, const Codings& codings, const EncodeJob& job,
                                Outbox& out);

}  // namespace winnow::compress
