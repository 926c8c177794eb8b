// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/nccl/groups.hpp"

#include <vector>

#include "kernels/exec/device_scope.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/reduce.hpp"

namespace winnow::comm {

using kernels::DeviceScope;
using kernels::cuda::Event;
using kernels::cuda::StreamRef;

Ticket NcclGroups::close(cudaStream_t stream) {
  Group& group = groups_.extend();
  group.stream = stream;
  group.empty = closed_ == operations_.end();
  group.captured = !group.empty && kernels::is_captured(exec_of(group));
  if (!group.empty) group.peer = operations_[closed_].peer;
  group.end = closed_ = operations_.end();
  return {groups_.last()};
}

void NcclGroups::move_on() {
  issue_all();
  retire();
}

/// Enqueues a group and the kernels before it.
void NcclGroups::issue(const Group& group) {
  for (std::uint64_t n = operations_.begin(); n != group.end; ++n) {
    const NcclOperation& operation = operations_[n];
    if (operation.floats.size() == 0) continue;
    kernels::to_ordered(exec_of(group), operation.floats,
                        operation.op == ncclMin ? ReduceOp::minimum : ReduceOp::maximum);
  }
  if (group.captured) communicator_.enter_graph();
  communicator_.use([&](ncclComm_t comm) { enqueue(group, comm); });
}

/// Enqueues a group's operations on its stream.
void NcclGroups::enqueue(const Group& group, ncclComm_t comm) {
  using Kind = NcclOperation::Kind;
  communicator_.check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t result = ncclSuccess;
  const char* call = "";
  const auto done = [&](const char* name, ncclResult_t returned) {
    if (returned != ncclSuccess && returned != ncclInProgress && result == ncclSuccess) {
      result = returned;
      call = name;
    }
  };
  for (std::uint64_t n = operations_.begin(); n != group.end; ++n) {
    const auto& [kind, from, to, count, type, op, peer, floats] = operations_[n];
    switch (kind) {
      case Kind::send:
        done("ncclSend", ncclSend(from, count, type, peer, comm, group.stream));
        break;
      case Kind::receive:
        done("ncclRecv", ncclRecv(to, count, type, peer, comm, group.stream));
        break;
      case Kind::all_reduce:
        done("ncclAllReduce", ncclAllReduce(from, to, count, type, op, comm, group.stream));
        break;
      case Kind::reduce_scatter:
        done("ncclReduceScatter", ncclReduceScatter(from, to, count, type, op, comm, group.stream));
        break;
      case Kind::reduce:
        done("ncclReduce", ncclReduce(from, to, count, type, op, peer, comm, group.stream));
        break;
      case Kind::all_gather:
        done("ncclAllGather", ncclAllGather(from, to, count, type, comm, group.stream));
        break;
    }
  }
  // In any case: a group that has begun must end.
  done("ncclGroupEnd", ncclGroupEnd());
  communicator_.check(result, call);
}

/// Enqueues the kernels behind a group that NCCL has issued.
void NcclGroups::finish(const Group& group) {
  for (; operations_.begin() != group.end; operations_.pop()) {
    const Elements floats = operations_.front().floats;
    if (floats.size() > 0) kernels::from_ordered(exec_of(group), floats);
  }
}

void NcclGroups::drop(const NcclMemory& memory) {
  if (std::erase(added_, &memory) == 0) communicator_.deregister(memory.handle);
}

/// Issues groups as far as NCCL takes them.
void NcclGroups::issue_all() {
  if (issued_ == groups_.last()) return;
  const DeviceScope scope(communicator_.device());
  for (; issued_ != groups_.last(); ++issued_) {
    Group& group = groups_[issued_ + 1];
    if (group.empty) continue;
    if (!issuing_) {
      for (; !added_.empty(); added_.pop_back()) {
        added_.back()->handle = communicator_.register_memory(added_.back()->bytes);
      }
      if (group.event == nullptr) group.event = std::make_unique<Event>();
      issue(group);
      issuing_ = true;
    }
    if (!communicator_.idle()) return;
    finish(group);
    if (!group.captured) group.event->record(StreamRef(group.stream));
    issuing_ = false;
  }
}

/// Drops what is done, in order. Throws if NCCL has failed.
void NcclGroups::retire() {
  const auto is_done = [](const Group& group) {
    return group.empty || group.captured || group.event->passed();
  };
  if (!groups_.retire(issued_, is_done)) (void)communicator_.idle();
}

}  // namespace winnow::comm
