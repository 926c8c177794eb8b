// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "comm/transport/fifo.hpp"
#include "comm/transport/nccl/communicator.hpp"
#include "comm/transport/ticket_queue.hpp"
#include "kernels/cuda/stream.hpp"

namespace winnow::comm {

/// One call of NCCL.
struct NcclOperation {
  enum class Kind : std::uint8_t { send, receive, all_reduce, reduce_scatter, reduce, all_gather };
  Kind kind;
  const void* from = nullptr;
  void* to = nullptr;
  std::uint64_t count = 0;  // in that call's unit
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = -1;         // or the root; -1 for all ranks
  Elements floats = {};  // replaced by integers during an ncclMin or ncclMax
};

/// Memory that is registered with a communicator, or is about to be.
struct NcclMemory {
  std::span<std::byte> bytes;
  void* handle = nullptr;
};

/// A rank's work for NCCL: a list of operations, which close() makes a group. A group is issued,
/// between ncclGroupStart and ncclGroupEnd, once NCCL has finished issuing the previous one; that
/// may take until all its peers have come. So groups wait here in order, and every move_on() takes
/// them further. For the minimum and maximum of floats, a kernel before the group maps them to
/// integers (kernels/reduce.hpp) and one behind it maps them back. An event behind all this on its
/// stream marks the end of a group. A captured group belongs to its graph, and is dropped once
/// issued. Memory is registered ahead of a group, when NCCL is not issuing another; in a capture,
/// too, for that asks CUDA for addresses alone.
class NcclGroups {
 public:
  /// For a communicator that outlives it.
  explicit NcclGroups(NcclCommunicator& communicator) : communicator_(communicator) {}

  void push(const NcclOperation& operation) { operations_.push(operation); }
  /// Closes a group of the operations since the last one. It may be empty.
  Ticket close(cudaStream_t stream);
  /// Issues groups as far as NCCL takes them, and drops those that are done. Throws if NCCL has
  /// failed.
  void move_on();

  /// Registers memory before the next group is issued; `memory` stays until drop().
  void add(NcclMemory& memory) { added_.push_back(&memory); }
  /// Ends the registration. Nothing is under way.
  void drop(const NcclMemory& memory);

  bool empty() const { return groups_.empty(); }
  void expect_started(Ticket ticket) const { groups_.expect_started(ticket); }
  /// Whether groups up to this ticket are issued, or done.
  bool issued(Ticket ticket) const { return issued_ >= ticket.number; }
  bool done(Ticket ticket) const { return groups_.completed() >= ticket.number; }
  /// The peer of an operation of the first unfinished group, for error messages; -1 for all ranks.
  int first_peer() { return groups_[groups_.completed() + 1].peer; }

 private:
  struct Group {
    std::uint64_t end = 0;  // one past its last operation
    cudaStream_t stream = nullptr;
    int peer = -1;
    bool empty = false, captured = false;
    std::unique_ptr<kernels::cuda::Event> event;  // behind it on its stream; stays with the slot
  };
  static Exec exec_of(const Group& group) { return {.place = Place::cuda, .stream = group.stream}; }
  void issue(const Group& group);
  void enqueue(const Group& group, ncclComm_t comm);
  void finish(const Group& group);
  void issue_all();
  void retire();

  NcclCommunicator& communicator_;
  std::vector<NcclMemory*> added_;  // not registered yet
  Fifo<NcclOperation> operations_;  // not issued yet, or only in part
  TicketQueue<Group> groups_;
  std::uint64_t issued_ = 0;  // ticket of the last group issued
  bool issuing_ = false;      // NCCL is working on the next one
  std::uint64_t closed_ = 0;  // one past the last operation in a group
};

}  // namespace winnow::comm
