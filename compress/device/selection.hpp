// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"
#include "kernels/call_status.hpp"
#include "kernels/seal.hpp"

namespace winnow::compress {

// Elements that a compressor chooses, of parts in device memory, on their way into messages. Work
// is enqueued on exec.stream; scratch is of exec.device_workspace.

/// A list in device memory that passes over parameters fill.
struct DeviceSelection {
  std::span<std::uint32_t> index;
  std::span<float> value;
  std::span<std::uint64_t> count;  ///< where Part::any_k, how many of them there are
};

/// Room for `most` elements; none are there yet. Their values go to `place`, where it is not empty.
DeviceSelection take_selection(const Exec& exec, const Part& part, std::uint64_t most,
                               std::span<float> place = {});

/// Takes care that select_pieces and seal_selection find their scratch: a pass that found none
/// after others had taken from their gradients would leave some of it taken, and some not.
void reserve_passes(const Exec& exec, const Part& part);

/// The passes of encode over the pieces: positions and values of what is kept for other ranks to
/// `selection`, and elements of this rank's own that reach a bound to the lists of `own`, one a
/// piece; a result each. Where Part::any_k, waits for the device and shortens the selection to what
/// it holds.
void select_pieces(const Exec& exec, const EncodeJob& job, std::span<const kernels::OwnedSums> own,
                   std::span<kernels::SelectResult> results, DeviceSelection& selection);

/// Waits for the device, and shortens a selection of a part with any_k to what it holds.
void await_selection(const Exec& exec, DeviceSelection& selection);

/// Elements on their way into a message of `header`, whose k they make.
struct DeviceSelected {
  Header header;
  kernels::RandomKey random;
  std::span<const std::uint32_t> index;
  std::span<float> value;  ///< what the coding misses is left here
  kernels::PoisonSources poison;
  kernels::CallStatus* verdict = nullptr;  ///< as in seal_on_device
};

/// Quantizes values, unless they lie where the message has them, and seals one message, that of the
/// host's seal_selected: the first bytes of `out`. Returns what it would be opened as.
MessageView seal_selection(const Exec& exec, const Codings& codings, const Part& part,
                           const DeviceSelected& selected, std::span<std::byte> out);

}  // namespace winnow::compress
