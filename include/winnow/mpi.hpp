// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Open MPI's C++ bindings, which mpi.h brings along, would warn in the user's build.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-function-type"
#include <mpi.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>
#include <memory>
#include <winnow/transport.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// Where messages of an MPI transport may lie.
enum class MpiMemory : std::uint8_t {
  automatic,  ///< the host's, and a device's where MPIX_Query_cuda_support says that MPI takes that
  host,       ///< the host's alone: Winnow stages what lies in a device's
};

/// A transport over a duplicate of `communicator` (collective; MPI must be initialised).
/// all_reduce is MPI_Allreduce, by operations of Winnow's own but for sums and products of floats.
/// `chunk_bytes` is the longest single MPI message, at most INT_MAX; longer ones travel in pieces.
/// 0 stands for 1 GiB within a node and 60 KB between nodes, which suits Open MPI over TCP: it
/// sends these without asking the receiver first. Other networks have other thresholds. node() is
/// the lowest rank that shares memory with this one. Needs MPI_THREAD_SERIALIZED if different
/// threads call it. Errors carry MPI's code and text.
///
/// abort() reaches peers in wait(), and at the start of all_reduce(); a peer inside MPI_Allreduce
/// stays there. Only the receiver sees that a message was too long: it should abort. Destroy it
/// before MPI_Finalize (collective; later it only frees memory). The destructor never waits for a
/// peer for more than a moment; what it cannot free then, the communicator or a transfer under way
/// whose buffer must live on, it leaves to MPI_Finalize.
///
/// Where it takes device memory, nothing is staged: messages of a start go when exec.stream has
/// passed what was enqueued there, which nobody waits for but wait; MPI_Allreduce, for sums and
/// products of floats alone, waits on the host. The device is that of the thread.
std::unique_ptr<Transport> mpi_transport(MPI_Comm communicator, std::size_t chunk_bytes = 0,
                                         MpiMemory memory = MpiMemory::automatic);

}  // namespace winnow

#pragma GCC visibility pop
