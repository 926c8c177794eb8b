// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/failure_latch.hpp"
#include "kernels/exec/own_process.hpp"

namespace winnow::comm {

/// The NCCL that runs may be older than the one that Winnow was built with, or than these options
/// (UsageError), or there is none.
void expect_library(const NcclOptions& options = {});

/// The data from rank 0 that a rank needs to join a communicator.
struct NcclInvitation {
  ncclUniqueId id;
  NcclOptions options;
};

/// An NCCL communicator; its errors become CommErrors with NCCL's text. If it is nonblocking, a
/// call may return before its work is done: no other call may follow until idle(). Any thread may
/// abort it, whatever another thread does with it.
class NcclCommunicator {
 public:
  /// Over a communicator that the caller keeps, once it is connected. The options are those of its
  /// parts.
  NcclCommunicator(ncclComm_t borrowed, const NcclOptions& options, Deadline deadline);
  /// Over the ranks of another transport, or of a meeting: see winnow/nccl.hpp.
  static std::unique_ptr<NcclCommunicator> meet(Transport& other, const NcclOptions& options,
                                                Deadline deadline);
  static std::unique_ptr<NcclCommunicator> meet(const NcclMeeting& meeting,
                                                const NcclOptions& options, Deadline deadline);
  /// Over the ranks that give the same color, ordered by key, with these options; null for
  /// NCCL_SPLIT_NOCOLOR. All ranks call it with nothing under way. If it throws, call abort().
  std::unique_ptr<NcclCommunicator> split(int color, int key, Deadline deadline);

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  /// If it owns the communicator, waits some seconds for peers at most, then aborts.
  ~NcclCommunicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int device() const { return device_; }
  bool registers_memory() const { return options_.register_memory; }

  /// Runs calls(comm), unless it has been aborted, and holds off an abort meanwhile.
  template <class Calls>
  void use(const Calls& calls) const {
    const std::lock_guard lock(mutex_);
    failure_.expect_usable();
    calls(comm_);
  }
  /// For use in use(): throws if NCCL refused a `call` at once.
  void check(ncclResult_t result, const char* call) const;
  /// Whether the last call is done; throws if anything has failed since.
  bool idle() const;
  /// Waits until idle(); the error says what NCCL did meanwhile.
  void settle(Deadline deadline, const char* what = "connected ranks") const;

  /// Registers memory of its device, while the communicator is idle, which it is afterwards. The
  /// handle, which may be null, is for deregister(), unless the communicator ends first.
  void* register_memory(std::span<std::byte> memory) const;
  void deregister(void* handle) const;

  /// Notes that later work may become part of a graph; NCCL ends the communicator only after that
  /// graph.
  void enter_graph() { in_graph_ = true; }

  /// Ends everything under way and drops the communicator. Does not wait for graphs.
  void abort(Failure why) noexcept;
  /// Why there is no communicator, or nothing.
  FailureLatch failure() const;

 private:
  explicit NcclCommunicator(const NcclOptions& options) : options_(options) {}
  /// `given` has the id and the options.
  static std::unique_ptr<NcclCommunicator> join(const NcclInvitation& given, int rank, int size,
                                                Deadline deadline);
  void look_up();
  void leave(void (*end)(ncclComm_t)) noexcept;

  mutable std::mutex mutex_;  // guards failure_ and every use of comm_
  ncclComm_t comm_ = nullptr;
  NcclOptions options_;
  FailureLatch failure_;
  std::shared_ptr<ncclComm_t> split_;  // where NCCL stores a part, sometimes as late as in an abort
  std::atomic<bool> in_graph_ = false;
  bool owned_ = true;
  kernels::OwnProcess process_;
  int rank_ = 0, size_ = 1, device_ = 0;
};

}  // namespace winnow::comm
