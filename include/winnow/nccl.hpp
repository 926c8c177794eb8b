// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <winnow/transport.hpp>

struct ncclComm;  // an ncclComm_t points to one; nccl.h itself is not needed here

#pragma GCC visibility push(default)

namespace winnow {

/// A meeting point for the ranks of a job that share only a file system.
struct NcclMeeting {
  /// A file path on which all ranks agree; its folder must exist. Rank 0 writes the file, under
  /// another name first, and removes it when all ranks have met.
  std::string path;
  /// A number that no other job, and no other attempt of this job, uses with this path: add the
  /// restart count. Ranks ignore a file with another number as stale. If rank 0 cannot come, it
  /// says so in the file, which then stays.
  std::uint64_t job = 0;
  int rank = 0, size = 1;
  int node = 0;  ///< as Transport::node()
};

/// How NCCL makes a communicator; the defaults leave everything to NCCL, whose own variables of the
/// environment (NCCL_MAX_CTAS and others) win. Equal on all ranks.
struct NcclOptions {
  /// Thread blocks (CTAs) that one of NCCL's kernels takes, at least and at most; 0: NCCL chooses.
  /// A few leave the GPU to a backward pass that runs meanwhile, and slow down each message. NCCL
  /// cuts a value that it cannot use to one that it can.
  int min_ctas = 0, max_ctas = 0;
  /// Thread blocks of a cluster, on GPUs that have clusters: up to 8, and 1 means none. 0: NCCL
  /// chooses.
  int cga_cluster_size = 0;
  /// Registers the device scratch of an AllReducer with NCCL (ncclCommRegister), so that it can
  /// move messages without copies of its own; see Registration below. Needs NCCL 2.19 (UsageError).
  bool register_memory = false;

  bool operator==(const NcclOptions&) const = default;
};

// Transports between GPUs, over NCCL 2.18 or newer: the libnccl.so.2 that the process has loaded,
// or else the one that the dynamic linker finds at the first call. A rank is a process or a thread,
// on the device that is current when its transport is made; no two ranks share a GPU. UsageError if
// Winnow was built without NCCL, or if it cannot be loaded or is older; CudaError if there is no
// GPU.
//
// Memory. Buffers must be on that device, or managed; anything else is a UsageError. start() and
// the collectives need Exec{Place::cuda, stream} with a non-null stream, and run after what is
// already enqueued there.
//
// Messages of one size from every rank to every other (enqueue_all_gather) are one ncclAllGather of
// whole slots, of one size on all ranks. The first slot should be 16-byte aligned, and slots a
// multiple of that.
//
// Rules. A message must have the size of its receive buffer (sizes_travel() is false); otherwise
// NCCL hangs until the deadline. Each start() is one NCCL group, and a rank's groups run one after
// another, so ranks whose groups wait for each other crosswise hang too. Strict local transports
// turn both into errors (comm/transport/local/local.hpp). Counts have 64 bits.
//
// Collectives are NCCL's own, sum in its order, give the same bits on all ranks, and keep their
// deadline. For the minimum and maximum of floats, one kernel maps them to ordered integers before
// the collective and another maps them back, since NCCL's own minimum and maximum ignore NaN.
//
// Errors are CommErrors that name NCCL's call and its last error. An error, abort(), or destroying
// a transport with messages under way aborts the communicator (ncclCommAbort), including one that
// the caller passed in. abort() reaches a peer only if NCCL sees the connection break; other peers
// wait until their deadline.
//
// Graphs. NCCL keeps a communicator, aborted or not, until every CUDA graph that holds its work is
// gone, so destroy graphs first. If some remain, the communicator ends in the background when they
// go; abort() and the destructor do not wait for it. A process that exits waits for that, 5 s at
// most.
//
// subset() is ncclCommSplit. All ranks of the parent call it, each with its own group, and wait up
// to 600 s for their started work and for each other. A rank that names no valid group takes part
// before it throws its UsageError; ranks whose groups differ get a CommError. Neither harms the
// parent. Aborting a subset leaves the parent alone, and the reverse. duplicate() is ncclCommSplit,
// too, up to its deadline.
//
// Both have the NcclOptions of their parent, are nonblocking, and take nothing else from it. A
// communicator that the caller made with splitShare = 1 still shares its resources with them, and
// an abort of one then ends all.
//
// Registration. With NcclOptions::register_memory, an AllReducer over the transport, a duplicate or
// a subset registers each block of its device scratch with that communicator (ncclCommRegister)
// before the first messages that use it, until the AllReducer ends. That end waits up to 5 s for
// messages and then aborts. NCCL wants all ranks' buffers of one call registered, or none: so what
// would else travel from or to a bucket's own memory goes through scratch too (dense calls, a copy
// each way; the first round of two-level schedules, one copy), and nothing is registered if some
// ranks' buckets lie in host memory. Buckets themselves, other buffers of callers and host messages
// are not registered. A rank that cannot register gets a CommError. NCCL may decline to register,
// or to use what is registered.
//
// Streams. NCCL's kernels run on the caller's stream, so its priority is theirs.

/// Whether Winnow was built with NCCL, and the process has a new enough one or can load it.
bool nccl_available();

/// Over the caller's communicator, which the caller must not use meanwhile. If it was made with
/// blocking = 0 in its ncclConfig_t, it may still be connecting: waits until it is done, a
/// CommError at the deadline, and deadlines also hold while NCCL connects ranks later. The options
/// are those of subsets and duplicates; register_memory, which is to be equal on all ranks, also
/// holds for this communicator.
std::unique_ptr<Transport> nccl_transport(
    ncclComm* communicator, int node, const NcclOptions& options = {},
    Deadline deadline = Deadline::after(std::chrono::seconds(600)));

/// Over a new communicator of the ranks of `other`, a transport of host memory such as MPI's, which
/// is used only here. Collective; an error on one rank is an error on all, at once or at the
/// deadline. UsageError on all if options differ.
std::unique_ptr<Transport> nccl_transport(Transport& other, Deadline deadline,
                                          const NcclOptions& options = {});

/// Over a new communicator of the ranks that come to a meeting. UsageError on a rank whose options
/// are not rank 0's; the others wait for it until the deadline.
std::unique_ptr<Transport> nccl_transport(const NcclMeeting& meeting, Deadline deadline,
                                          const NcclOptions& options = {});

}  // namespace winnow

#pragma GCC visibility pop
