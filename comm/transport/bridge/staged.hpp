// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A transport of messages in memory of the current device over `inner`, which takes the host's and
/// outlives it: MPI, threads, simulated. A message is one of `inner`, staged in page-locked memory,
/// so sizes travel as they do there.
///   start  enqueues the copies of what is sent on exec.stream, and returns. The messages go on
///          when they are there, in the order of the starts, within any call of this transport or
///          of a subset of it; so the next messages are copied while these are on their way. What
///          goes to several peers, one after the other, is copied once.
///   wait   lets all that was started go first, whatever the ticket: a peer may need it. When it
///          returns, what was received is in the device's memory, for any stream. These copies
///          have a stream of their own: behind what was enqueued on exec.stream since the start
///          they might wait for peers. test does the same in turns.
/// Over a transport that has GrowingMessages (MPI) a long message is copied in chunks of 1 MiB, of
/// which the first are sent while the next are copied, and copied to the device as they come. It
/// stays one message of `inner`.
/// Collectives copy to the host, run that of `inner` on the whole, so that its order of summation
/// and its bits are the same, and copy back; exec.workspace required where it is there.
/// A failure of `inner` in a collective leaves the device's elements as they were. Other messages
/// must not go over `inner` itself while any are under way here. Staging is allocated in the first
/// step, used again, and never freed after a failure.
/// UsageError where `inner` does not take host memory, or where Winnow was built without CUDA.
std::unique_ptr<Transport> staged(Transport& inner);

}  // namespace winnow::comm
