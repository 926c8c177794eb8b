// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"

namespace winnow::compress {

// What compress/support.hpp does, of parts in device memory, and what goes before it. Work is
// enqueued on exec.stream; scratch is of exec.device_workspace, and what the host lists of
// exec.workspace.

/// Compressor::select of `compressor`.
void select_on_device(const Exec& exec, const Compressor& compressor, const EncodeJob& job,
                      std::span<std::byte> out);

/// Compressor::take and add.
void take_on_device(const Exec& exec, const Codings& codings, const EncodeJob& job, Taken& taken,
                    std::span<std::byte> out);
void add_on_device(const Exec& exec, const Codings& codings, const EncodeJob& job,
                   std::span<const MessageView> terms, const Addition& out);

}  // namespace winnow::compress
