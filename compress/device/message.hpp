// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"
#include "compress/message.hpp"
#include "kernels/seal.hpp"

namespace winnow::compress {

// Messages in device memory. Work is enqueued on exec.stream; scratch is of exec.device_workspace
// and what the host lists of exec.workspace.

/// What seal does, and Header::kPoison where a source says so when the work runs; the verdict, if
/// not null, is told of it, too. Returns what the message would be opened as: its indices are
/// `index`.
MessageView seal_on_device(const Exec& exec, const Header& header,
                           std::span<const std::uint32_t> index,
                           const kernels::PoisonSources& poison, std::span<std::byte> out,
                           const Codings& codings, kernels::CallStatus* verdict = nullptr);

/// What Compressor::open_all does. The device looks at the messages and says whether all is sound;
/// one that is not is fetched, so that the host can say what is wrong, as open does. Values of a
/// lossy coding stay coded. Waits for the device, and before that where a k is open.
std::uint16_t open_on_device(const Exec& exec, std::span<const Incoming> incoming,
                             const Codings& codings, std::span<MessageView> views);

/// What Compressor::open_unseen does.
void judge_on_device(const Exec& exec, std::span<const Incoming> incoming, const Codings& codings,
                     std::span<MessageView> views, kernels::CallStatus& verdict);

}  // namespace winnow::compress
