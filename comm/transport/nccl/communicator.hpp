// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// An NCCL communicator and its errors, which become CommErrors with NCCL's text. Where it does not
/// block, a call may return before it has done its work: no other one may follow until idle(). Any
/// thread may abort it, whatever another one does with it.
class NcclCommunicator {
 public:
  /// One that the caller keeps.
  explicit NcclCommunicator(ncclComm_t borrowed);
  /// Of the ranks of another transport, or of a meeting: see winnow/nccl.hpp.
  static std::unique_ptr<NcclCommunicator> meet(Transport& other, Deadline deadline);
  static std::unique_ptr<NcclCommunicator> meet(const NcclMeeting& meeting, Deadline deadline);
  /// Of the ranks that give the same color, ordered by key; none where that is NCCL_SPLIT_NOCOLOR.
  /// All ranks call it, and have nothing under way. Where it throws, abort().
  std::unique_ptr<NcclCommunicator> split(int color, int key, Deadline deadline);

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  /// Of one that it owns waits for peers for no more than some seconds, then aborts it.
  ~NcclCommunicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int device() const { return device_; }

  /// Runs calls(comm), unless it has been aborted, and keeps that off meanwhile.
  template <class Calls>
  void use(const Calls& calls) const {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw CommError(failure_);
    calls(comm_);
  }
  /// Within use: throws where NCCL refused a `call` at once.
  void check(ncclResult_t result, const char* call) const;
  /// Whether the last call is done; throws where something has failed since.
  bool idle() const;
  /// Waits for that.
  void settle(Deadline deadline) const;

  /// What follows, or some of it, becomes part of a graph, without which NCCL ends no communicator.
  void enter_graph() { in_graph_ = true; }

  /// Ends all that is under way. After it there is no communicator. Waits for no graph.
  void abort(std::string_view why) noexcept;
  /// Why there is none, or empty.
  std::string failure() const;

 private:
  NcclCommunicator() = default;
  static std::unique_ptr<NcclCommunicator> join(const ncclUniqueId& id, int rank, int size,
                                                Deadline deadline);
  void look_up();
  void leave(void (*end)(ncclComm_t)) noexcept;

  mutable std::mutex mutex_;  // of what is done with comm_; guards failure_
  ncclComm_t comm_ = nullptr;
  std::string failure_;
  std::shared_ptr<ncclComm_t> split_;  // where NCCL puts a part, at times as late as in an abort
  std::atomic<bool> in_graph_ = false;
  bool owned_ = true;
  int rank_ = 0, size_ = 1, device_ = 0;
};

}  // namespace winnow::comm
