// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <memory>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "comm/transport/fifo.hpp"
#include "comm/transport/nccl/communicator.hpp"
#include "kernels/cuda/stream.hpp"

namespace winnow::comm {

/// One call of NCCL.
struct NcclOperation {
  enum class Kind : std::uint8_t { send, receive, all_reduce, reduce_scatter, reduce, all_gather };
  Kind kind;
  const void* from = nullptr;
  void* to = nullptr;
  std::uint64_t count = 0;  // as that call takes it
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = -1;         // or root; -1 of what is of all ranks
  Elements floats = {};  // for which the integers of an ncclMin or ncclMax stand meanwhile
};

/// What a rank has for NCCL to do: a list of operations, which close() makes a group. A group is
/// issued, between ncclGroupStart and ncclGroupEnd, when NCCL is done with issuing the one before,
/// which may take until all its peers have come: so groups wait here, in their order, and every
/// call of move_on() takes them further. Where integers stand for floats, a kernel ahead of the
/// group makes them (kernels/cuda/reduce.hpp), and one behind it makes floats of them again. An
/// event behind it all in its stream says when a group is done; one that was captured is a graph's
/// affair, and gone when it is issued.
class NcclGroups {
 public:
  /// Of a communicator that outlives it.
  explicit NcclGroups(NcclCommunicator& communicator) : communicator_(communicator) {}

  void push(const NcclOperation& operation) { operations_.push(operation); }
  /// Makes a group of what came since the last one, if anything did.
  void close(std::uint64_t ticket, cudaStream_t stream);
  /// Issues groups as far as NCCL takes them, and drops those that are done. Throws where NCCL has
  /// failed.
  void move_on();

  bool empty() const { return groups_.empty(); }
  /// Whether groups up to this ticket are issued.
  bool issued(std::uint64_t ticket) const {
    return issued_ == groups_.end() || groups_[issued_].ticket > ticket;
  }
  /// Of the first group that is not done.
  std::uint64_t first_ticket() const { return groups_[groups_.begin()].ticket; }
  /// The peer of one of its operations, for the text of an error; -1 for all ranks.
  int first_peer() const { return groups_[groups_.begin()].peer; }

 private:
  struct Group {
    std::uint64_t ticket = 0;
    std::uint64_t end = 0;  // number after that of its last operation
    cudaStream_t stream = nullptr;
    int peer = -1;
    bool captured = false;
    std::unique_ptr<kernels::cuda::Event> event;  // behind it in its stream; stays with the slot
  };
  static Exec exec_of(const Group& group) { return {.place = Place::cuda, .stream = group.stream}; }
  void issue(const Group& group);
  void enqueue(const Group& group, ncclComm_t comm);
  void finish(const Group& group);
  void issue_all();
  void retire();

  NcclCommunicator& communicator_;
  Fifo<NcclOperation> operations_;  // not issued yet, or not in full
  Fifo<Group> groups_;              // not done
  std::uint64_t issued_ = 0;        // number of the first group that is not issued
  bool issuing_ = false;            // NCCL is at work on that one
  std::uint64_t closed_ = 0;        // number after that of the last operation of a group
};

}  // namespace winnow::comm
