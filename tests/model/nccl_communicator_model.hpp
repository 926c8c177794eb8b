// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/model/cuda_model.hpp"

// The communicators of the model of NCCL (nccl_model.cpp), which run what is enqueued.

namespace winnow::tests {

struct NcclOperation {
  enum class Kind { send, receive, all_reduce, reduce_scatter, reduce, all_gather } kind;
  const void* from;
  void* to;
  std::size_t bytes;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;
};

/// A message on offer from one rank to another.
struct NcclOffer {
  const void* from;
  std::size_t bytes;
  bool registered = false;  // of a collective: this rank's buffers
  bool taken = false;
};

struct NcclWorld;

/// One split of a communicator, which all its ranks join.
struct NcclSplit {
  std::map<int, std::pair<int, int>> colors;  // by rank: color and key
  std::map<int, std::shared_ptr<NcclWorld>> parts;
};

/// State shared by the ranks of a communicator.
struct NcclWorld {
  explicit NcclWorld(int ranks) : size(ranks) {}
  int size, arrived = 0;
  std::map<std::pair<int, int>, std::deque<NcclOffer*>> offers;  // by sender and receiver
  std::map<std::uint64_t, NcclSplit> splits;                     // in call order
};

/// Of an element.
std::size_t nccl_bytes_of(ncclDataType_t type);

/// A rank's communicator, whose thread runs its groups, in order.
struct NcclCommunicator {
  std::shared_ptr<NcclWorld> world;
  int rank = 0, device = 0;
  bool blocking = true, part_blocks = true;
  bool connected = false;     // as far as its rank knows
  int looks = 0;              // polls for which it stays in progress
  ncclComm** part = nullptr;  // of a split that not all ranks have joined
  std::uint64_t splits = 0;
  bool aborted = false, finalizing = false, ending = false;
  std::map<void*, std::span<const std::byte>> registered;  // by handle
  std::shared_ptr<int> held = std::make_shared<int>();     // by work in graphs; each holds a copy
  ncclResult_t error = ncclSuccess;
  std::deque<std::pair<std::vector<NcclOperation>, std::shared_ptr<StreamWork>>> groups;
  std::thread runner;

  void run();
  /// Whether memory lies in a registered range.
  bool is_registered(const void* memory, std::size_t bytes) const;

 private:
  void run_group(Lock& lock, const std::vector<NcclOperation>& group);
  /// One rank's receipt.
  struct Receipt {
    NcclOperation operation;
    bool registered;
  };
  void exchange(Lock& lock, std::vector<std::pair<int, NcclOffer>>& sends,
                const std::vector<Receipt>& receipts);
  void run_collective(Lock& lock, const NcclOperation& operation);
};

}  // namespace winnow::tests

struct ncclComm : winnow::tests::NcclCommunicator {};
