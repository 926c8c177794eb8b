// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A transport of messages in the current device's memory over `inner`, which takes host memory and
/// outlives it: MPI, threads, simulated. Each message is one message of `inner`, staged in
/// page-locked memory, so sizes travel if they travel there.
///   start  enqueues the copies of outgoing messages on exec.stream and returns. Messages go on
///          when their copies are done, in the order of the starts, within any call of this
///          transport or of its subsets; so the next messages are copied while these travel. A
///          message sent to several peers in a row is copied once.
///   wait   first lets everything started go, whatever the ticket, since a peer may need it. When
///          it returns, received messages are in device memory, ready for any stream. Their copies
///          use a separate stream: behind what was enqueued on exec.stream since the start they
///          might wait for peers. test() does one turn of this.
/// If `inner` has GrowingMessages (MPI), a long message is copied in chunks of 1 MiB: the first are
/// sent while the next are copied, and received chunks are copied to the device as they arrive. It
/// stays one message of `inner`.
/// Collectives copy to the host, run the inner one on the whole (so order of summation and bits
/// stay the same), and copy back; they need exec.workspace if the inner one does. A failure in a
/// collective of `inner` leaves the device's elements unchanged. Send nothing over `inner` itself
/// while messages are under way here. Staging memory is allocated in the first step, reused, and
/// never freed after a failure. UsageError if `inner` does not take host memory, or if Winnow was
/// built without CUDA.
std::unique_ptr<Transport> staged(Transport& inner);

}  // namespace winnow::comm
