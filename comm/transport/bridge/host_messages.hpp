// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A transport of messages in host memory over `inner`, which takes the current device's and
/// outlives it: NCCL. For what ranks tell each other about their calls (agreement, discovery,
/// probes): small, and simple rather than fast. A message is one of `inner`, so it must be as long
/// as its buffer where sizes do not travel there.
///   start  copies what is sent to the device, waits for that, and starts `inner` on a stream of
///          its own, together with what the caller has enqueued there and not started.
///   wait   waits for `inner`, and copies what was received to the host; nothing else that is
///          enqueued on the device holds it up.
/// Messages of both go the same way: every rank must start, here and over `inner`, in one order.
/// Collectives copy, run that of `inner`, and copy back. Exec::place is not cuda, and
/// Exec::stream unused.
/// UsageError where `inner` takes no device memory, or where Winnow was built without CUDA.
std::unique_ptr<Transport> host_messages(Transport& inner);

}  // namespace winnow::comm
