// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mpi/meeting.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/mpi/calls.hpp"
#include "comm/transport/poll.hpp"
#include "kernels/exec/keep_for_ever.hpp"

namespace winnow::comm {
namespace {

struct RankInfo {
  std::uint64_t node;  // equal on ranks that share memory
  std::uint64_t chunk_bytes;
  NodeMemory::Address memory;  // that rank 0 has made
};

/// The memory that MPI writes to; it must live on if a rank gives up.
struct Pending {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm duplicate = MPI_COMM_NULL;
  RankInfo mine{};
  std::vector<RankInfo> ranks;
  int opened = 0, all_opened = 0;
};

/// Two machines may have one name, and two containers of one machine share no memory.
std::uint64_t node_of_this_process() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name;
  int length = 0;
  check_mpi(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  std::string identity(name.data(), static_cast<std::size_t>(length));
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  for (std::string line; std::getline(boot, line);) identity += "\n" + line;
  return std::hash<std::string>()(identity);
}

/// Completes a request, by MPI_Test, which the checker does not count.
// NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
void finish(std::unique_ptr<Pending>& pending, int code, const char* call, Deadline deadline) {
  check_mpi(code, call);
  int done = 0;
  const auto ended = [&] {
    code = MPI_Test(&pending->request, &done, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS || done != 0;
  };
  if (!spin_until(ended, deadline)) {
    kernels::keep_for_ever(pending.release());
    const Failure why = missed_deadline(std::string("while it waited in ") + call +
                                        " for the other ranks of the communicator");
    fail_by({"mpi_transport: " + why.text, why.kind});
  }
  check_mpi(code, call);
}
// NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)

void expect_one_chunk_size(const std::vector<RankInfo>& ranks) {
  const auto [least, most] = std::ranges::minmax_element(ranks, {}, &RankInfo::chunk_bytes);
  WINNOW_EXPECTS(most->chunk_bytes <= INT_MAX, "mpi_transport with chunk_bytes " +
                                                   std::to_string(most->chunk_bytes) +
                                                   ": must be at most " + std::to_string(INT_MAX));
  // The size of a piece marks the end of a message, so all ranks must cut alike.
  WINNOW_EXPECTS(least->chunk_bytes == most->chunk_bytes,
                 "mpi_transport with chunk_bytes from " + std::to_string(least->chunk_bytes) +
                     " to " + std::to_string(most->chunk_bytes) + ": must be equal on all ranks");
}

/// Rank 0's memory, or none if a rank is on another node or cannot open it. Collective.
NodeMemory share(NodeMemory made, std::size_t bytes, MPI_Comm communicator,
                 const std::vector<int>& nodes, std::unique_ptr<Pending>& pending,
                 Deadline deadline) {
  if (std::ranges::count(nodes, 0) != std::ssize(nodes)) return {};
  NodeMemory memory =
      made ? std::move(made) : NodeMemory::open(pending->ranks.front().memory, bytes);
  pending->opened = memory ? 1 : 0;
  // NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): finish, again
  const int code = MPI_Iallreduce(&pending->opened, &pending->all_opened, 1, MPI_INT, MPI_MIN,
                                  communicator, &pending->request);
  // NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)
  finish(pending, code, "MPI_Iallreduce", deadline);
  memory.close_to_others();
  return pending->all_opened != 0 ? std::move(memory) : NodeMemory();
}

}  // namespace

MpiMeeting meet(MPI_Comm communicator, std::uint64_t chunk_bytes, Deadline deadline) {
  auto pending = std::make_unique<Pending>();
  int size = 0, rank = 0;
  check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  const std::size_t shared_bytes = NodeGroup::memory_bytes(size);
  NodeMemory made = rank == 0 && size > 1 ? NodeMemory::make(shared_bytes) : NodeMemory();
  pending->mine = {
      .node = node_of_this_process(), .chunk_bytes = chunk_bytes, .memory = made.address()};
  pending->ranks.resize(static_cast<std::size_t>(size));
  finish(pending,
         MPI_Iallgather(&pending->mine, sizeof(RankInfo), MPI_BYTE, pending->ranks.data(),
                        sizeof(RankInfo), MPI_BYTE, communicator, &pending->request),
         "MPI_Iallgather", deadline);
  expect_one_chunk_size(pending->ranks);

  MpiMeeting meeting;
  meeting.rank = rank;
  for (const RankInfo& info : pending->ranks) {
    const auto first = std::ranges::find(pending->ranks, info.node, &RankInfo::node);
    meeting.nodes.push_back(static_cast<int>(first - pending->ranks.begin()));
  }
  if (NodeMemory memory =
          share(std::move(made), shared_bytes, communicator, meeting.nodes, pending, deadline)) {
    meeting.group = NodeGroup(std::move(memory), rank, size);
  }
  finish(pending, MPI_Comm_idup(communicator, &pending->duplicate, &pending->request),
         "MPI_Comm_idup", deadline);
  meeting.communicator = pending->duplicate;
  check_mpi(MPI_Comm_set_errhandler(meeting.communicator, MPI_ERRORS_RETURN),
            "MPI_Comm_set_errhandler");
  return meeting;
}

}  // namespace winnow::comm
