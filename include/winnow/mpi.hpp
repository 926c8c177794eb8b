// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpi.h includes Open MPI's C++ bindings, which would warn in the user's build.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-function-type"
#include <mpi.h>
#pragma GCC diagnostic pop

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <winnow/transport.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// Which memory an MPI transport takes.
enum class MpiMemory : std::uint8_t {
  automatic,  ///< host, and device if MPIX_Query_cuda_support says that MPI takes it
  host,       ///< host only; Winnow stages device memory
};

/// A transport over a duplicate of `communicator` (collective; MPI must be initialised). all_reduce
/// is MPI_Allreduce; sums and products of floats use MPI's operations, the rest Winnow's own. But
/// where all ranks share the memory of a node, up to 256 KiB in host memory (less with more than 31
/// ranks) are reduced there, in rank order. `chunk_bytes` is the longest single MPI message, at
/// most INT_MAX; longer ones travel in pieces. 0 means 1 GiB within a node and 60 KB between nodes:
/// Open MPI over TCP sends messages of that size without asking the receiver first; other networks
/// have other thresholds. node() is the lowest rank with this one's processor name on this machine.
/// Throws CommError if the ranks have not met when the deadline passes; `communicator` then still
/// serves, but not for all of them. Needs MPI_THREAD_SERIALIZED if different threads call it.
/// Errors carry MPI's code and text.
///
/// abort() reaches peers in wait(), at the start of all_reduce(), and in one that needs no
/// MPI_Allreduce; a peer inside of that stays there, whatever its deadline. Only the receiver sees
/// that a message was too long, and should abort. Destroy the transport before MPI_Finalize
/// (collective; afterwards the destructor only frees memory). The destructor waits for a peer for a
/// moment at most, and leaves what it cannot free by then to MPI_Finalize: the communicator, or a
/// transfer under way whose buffer must live on.
///
/// duplicate() duplicates the communicator again.
///
/// If MPI takes device memory, nothing is staged. The messages of a start go once exec.stream has
/// passed what was enqueued before them; only wait blocks for that. MPI_Allreduce, used here only
/// for sums and products of floats, blocks the host. The device is the thread's current one.
std::unique_ptr<Transport> mpi_transport(
    MPI_Comm communicator, std::size_t chunk_bytes = 0, MpiMemory memory = MpiMemory::automatic,
    Deadline deadline = Deadline::after(std::chrono::minutes(10)));

}  // namespace winnow

#pragma GCC visibility pop
