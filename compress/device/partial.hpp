// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"

namespace winnow::compress {

// Sums of some ranks' gradients, in device memory. Work is enqueued on exec.stream; scratch is of
// exec.device_workspace, and what the host lists of exec.workspace.

/// sum = the terms in their order, by kernels::ordered_sum. Returns a word that becomes not 0
/// where some sum is not finite.
std::span<const std::uint32_t> sum_terms(const Exec& exec, std::span<const kernels::Term> terms,
                                         std::span<float> sum);

/// What compress::merge does; waits for the device, which alone knows how long a union is.
MessageView merge_on_device(const Exec& exec, const Header& header, const MessageView& first,
                            const MessageView& second, const Codings& codings);

/// What compress::pack does, with the codings of the message.
void pack_on_device(const Exec& exec, MessageView& sum, std::span<std::byte> out,
                    const Codings& written);

}  // namespace winnow::compress
