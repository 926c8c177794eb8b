// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A transport of host messages over `inner`, which takes the current device's memory and outlives
/// it: NCCL. For what ranks exchange about their calls (agreement, discovery, probes):
/// small, and simple rather than fast. Each message is one message of `inner`, so it must be as
/// long as its buffer if sizes do not travel there.
///   start  copies outgoing messages to the device, waits for that, and starts `inner` on a stream
///          of its own, together with what the caller has enqueued on `inner` and not started.
///   wait   waits for `inner`, then copies received messages to the host; no other work on the
///          device delays this.
/// Both kinds of message use `inner`, so every rank must make its starts, here and over `inner`, in
/// one order. Collectives copy, run the inner collective, and copy back. Exec::place is not cuda,
/// and Exec::stream is unused. Its streams have the priority of `beside`, a cudaStream_t; null is
/// the default stream. UsageError if `inner` takes no device memory, or if Winnow was built without
/// CUDA.
std::unique_ptr<Transport> host_messages(Transport& inner, void* beside = nullptr);

}  // namespace winnow::comm
