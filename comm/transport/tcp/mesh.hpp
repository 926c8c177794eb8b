// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>
#include <winnow/transport.hpp>

#include "comm/transport/shm/shared_ring.hpp"
#include "comm/transport/tcp/connection.hpp"
#include "comm/transport/tcp/note_channel.hpp"
#include "comm/transport/tcp/ports.hpp"

namespace winnow::comm {

/// The connections to one peer: messages go over `data`, notes over `control`, so that an abort
/// overtakes messages and each peer's death is seen whether or not a message is expected.
struct TcpLink {
  Connection data;
  NoteChannel control;
  SharedRing in, out;  ///< if open, messages go through these instead of `data`
};

/// Connects this rank with all others; element i of the result is rank i's link, its own closed.
///
/// A rank connects to every lower one, twice, by that rank's credentials (NoteChannel), which are
/// derived from those of the job and the random number in its address, and greets with its own
/// number and a digest of the list. It tries a peer's endpoints in turn, a few hundred milliseconds
/// apart or when one fails, and keeps the first that answers; that the choice is final it says in a
/// last note. A connection whose notes are not proved is a stranger's and is closed.
///
/// Throws UsageError if the list is not of addresses, or does not hold this rank's at `rank`, or
/// peers were given another list; CommError at the deadline, naming the ranks that are missing.
/// Notifies the others why, so that they need not wait for their deadline; for that it closes the
/// sockets of `ports`.
std::vector<TcpLink> connect_mesh(TcpPorts& ports, int rank, std::span<const std::string> addresses,
                                  Deadline deadline);

}  // namespace winnow::comm
