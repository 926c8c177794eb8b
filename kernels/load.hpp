// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>

namespace winnow::kernels {

/// Loads all kernels to the current device, if the place is one. The runtime loads a kernel at its
/// first launch otherwise, and may then wait for all that runs there: for ever, if that waits for
/// what the host has not yet enqueued, as NCCL's kernels do. CudaError if the device cannot run
/// them.
void load_kernels(Place place);

/// Whether a call can run at the place: there is no other than host and device memory, but for the
/// reference bodies once the laboratory has brought them.
bool can_run(Place place) noexcept;

}  // namespace winnow::kernels
