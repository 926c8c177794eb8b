// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "compress/compressor.hpp"

namespace winnow::compress {

/// `compressor` for parts in device memory: the same messages and residuals, bit for bit. Messages
/// and what they are opened to lie there too, in scratch of exec.device_workspace. Work is enqueued
/// on exec.stream; the host waits for it where it decides by what the device says: once in
/// open_all and write_outcome, once more in open_all of messages whose k is open, in encode of
/// chosen elements to several owners, in merge of two lists and, where any_k, in encode and
/// encode_sums.
std::unique_ptr<Compressor> on_device(std::unique_ptr<Compressor> compressor);

}  // namespace winnow::compress
