// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <memory>
#include <winnow/nccl.hpp>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// An NCCL communicator and its errors, which become CommErrors with NCCL's text. Where it does not
/// block, a call may return before it has done its work: no other one may follow until idle().
class NcclCommunicator {
 public:
  /// One that the caller keeps.
  explicit NcclCommunicator(ncclComm_t borrowed);
  /// Of the ranks of another transport, or of a meeting: see winnow/nccl.hpp.
  static NcclCommunicator meet(Transport& other, Deadline deadline);
  static NcclCommunicator meet(const NcclMeeting& meeting, Deadline deadline);
  /// Of the ranks that give the same color, ordered by key; none where that is NCCL_SPLIT_NOCOLOR.
  /// All ranks call it, and have nothing under way. Where it throws, abort().
  NcclCommunicator split(int color, int key, Deadline deadline);

  NcclCommunicator(NcclCommunicator&& other) noexcept;
  NcclCommunicator& operator=(NcclCommunicator&&) = delete;
  /// Of one that it owns waits for peers for no more than a moment, then aborts it.
  ~NcclCommunicator();

  ncclComm_t get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int device() const { return device_; }

  /// Throws where NCCL refused a `call` at once.
  void check(ncclResult_t result, const char* call) const;
  /// Whether the last call is done; throws where something has failed since.
  bool idle() const;
  /// Waits for that.
  void settle(Deadline deadline) const;
  /// Ends all that is under way. After it there is no communicator.
  void abort() noexcept;

 private:
  NcclCommunicator() = default;
  static NcclCommunicator join(const ncclUniqueId& id, int rank, int size, Deadline deadline);
  void look_up();

  ncclComm_t comm_ = nullptr;
  std::unique_ptr<ncclComm_t> split_;  // where NCCL puts a part, at times as late as in abort()
  bool owned_ = true;
  int rank_ = 0, size_ = 1, device_ = 0;
};

}  // namespace winnow::comm
