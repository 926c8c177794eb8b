// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <winnow/transport.hpp>

struct ncclComm;  // an ncclComm_t points to one; nccl.h itself is not needed here

#pragma GCC visibility push(default)

namespace winnow {

/// Where the ranks of a job meet that have nothing but a file system in common.
struct NcclMeeting {
  /// A file on which all ranks agree, in a folder that is there. Rank 0 writes it, under another
  /// name first, and removes it when all ranks have met.
  std::string path;
  /// A number that no other job uses with this path, and no other attempt of this job: add the
  /// count of restarts. A file that says another one is an old one; one in which rank 0 says that
  /// it cannot come stays there.
  std::uint64_t job = 0;
  int rank = 0, size = 1;
  int node = 0;  ///< as Transport::node()
};

// Transports between GPUs, over NCCL 2.18 or newer. A rank is a process, or a thread, and the
// device that is current where its transport is made; GPUs differ between ranks. UsageError where
// Winnow was built without NCCL, CudaError where there is no GPU.
//
// Memory. What they send, receive and reduce lies on that device, or is managed; anything else is a
// UsageError. start() and the collectives want Exec{Place::cuda, stream} with a stream that is not
// null; what is enqueued there already comes first.
//
// Rules. A message must have the size of its buffer (sizes_travel() is false): where it has not,
// NCCL hangs until the deadline. What one start() sets going is an NCCL group, and the groups of a
// rank run one after another, so ranks whose groups wait for each other crosswise hang too. They
// may be tried out over threads, where both are errors (comm/transport/local/local.hpp). Counts
// have 64 bits.
//
// Collectives are NCCL's own, in its order of summation, with the same bits on all ranks, and keep
// their deadline. The minimum and maximum of floats are made of integers that stand for them, by a
// kernel before and one behind, since NCCL's own pass over NaN.
//
// Errors are CommErrors that name NCCL's call and its last error. After one, after abort() and
// after the end of a transport that has messages under way the communicator has been aborted
// (ncclCommAbort), also one that the caller gave. abort() reaches peers only where NCCL sees their
// connections break: others wait until their deadline.
//
// Graphs. NCCL keeps a communicator, aborted or not, until every CUDA graph is gone that holds work
// of it. So destroy graphs first. Where they are still there, the communicator is ended behind the
// scenes when they go; abort() and the transport's end do not wait for it.
//
// subset() is ncclCommSplit: all ranks of the parent call it, each with the group that it is in,
// and wait until what they have started is done, and for each other, for up to 600 s. A rank that
// gives no group takes part before it throws its UsageError; ranks whose groups differ get a
// CommError. Both leave the parent as it is, and so does an abort of a subset, or the reverse.

/// Over a communicator that the caller keeps, and must not use meanwhile: one that is connected, of
/// which ncclCommGetAsyncError says ncclSuccess. Deadlines hold while NCCL connects ranks, too, if
/// it was made with blocking = 0 in its ncclConfig_t.
std::unique_ptr<Transport> nccl_transport(ncclComm* communicator, int node);

/// Over a new communicator of the ranks of `other`, a transport of host memory such as MPI's, which
/// is used only here. Collective; an error on one rank is one on all, at once or at the deadline.
std::unique_ptr<Transport> nccl_transport(Transport& other, Deadline deadline);

/// Over a new communicator of the ranks that come to a meeting.
std::unique_ptr<Transport> nccl_transport(const NcclMeeting& meeting, Deadline deadline);

}  // namespace winnow

#pragma GCC visibility pop
