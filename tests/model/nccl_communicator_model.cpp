// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/model/nccl_communicator_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <span>

#include "kernels/reduce.hpp"

namespace winnow::tests {
namespace {

struct Aborted {};

ElementType element_type_of(ncclDataType_t type) {
  using enum ElementType;
  static const std::map<ncclDataType_t, ElementType> types = {
      {ncclFloat32, float32}, {ncclFloat64, float64}, {ncclInt8, int8},   {ncclUint8, uint8},
      {ncclInt32, int32},     {ncclUint32, uint32},   {ncclInt64, int64}, {ncclUint64, uint64}};
  return types.at(type);
}

ReduceOp op_of(ncclRedOp_t op) {
  static const std::map<ncclRedOp_t, ReduceOp> ops = {{ncclSum, ReduceOp::sum},
                                                      {ncclProd, ReduceOp::product},
                                                      {ncclMin, ReduceOp::minimum},
                                                      {ncclMax, ReduceOp::maximum}};
  return ops.at(op);
}

/// into[i] = fmin or fmax of into[i] and from[i]; of two zeros the first stays.
template <class T>
void reduce_floats(ncclRedOp_t op, void* into, const void* from, std::size_t count) {
  const std::span<T> a(static_cast<T*>(into), count);
  const std::span<const T> b(static_cast<const T*>(from), count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool other = op == ncclMin ? b[i] < a[i] : b[i] > a[i];
    if (other || std::isnan(a[i])) a[i] = b[i];
  }
}

void reduce(ncclRedOp_t op, ncclDataType_t type, void* into, const void* from, std::size_t count) {
  const bool extreme = op == ncclMin || op == ncclMax;
  if (extreme && type == ncclFloat32) return reduce_floats<float>(op, into, from, count);
  if (extreme && type == ncclFloat64) return reduce_floats<double>(op, into, from, count);
  const ElementType element = element_type_of(type);
  kernels::reduce({}, op_of(op), {into, count, element}, ConstElements(from, count, element));
}

}  // namespace

std::size_t nccl_bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64:
      return 8;
    default:
      return 4;
  }
}

bool NcclCommunicator::is_registered(const void* memory, std::size_t bytes) const {
  const std::span at(static_cast<const std::byte*>(memory), bytes);
  return std::ranges::any_of(registered, [&](const auto& entry) {
    const std::span<const std::byte> range = entry.second;
    return at.data() >= range.data() && at.data() + at.size() <= range.data() + range.size();
  });
}

void NcclCommunicator::run() {
  Lock lock(model_mutex);
  for (;;) {
    model_changed.wait(lock, [&] { return aborted || !groups.empty() || ending; });
    if (groups.empty() || aborted) break;
    const auto group = groups.front().first;
    const auto work = groups.front().second;
    model_changed.wait(lock, [&] { return aborted || is_first(lock, *work); });
    if (aborted) break;
    try {
      run_group(lock, group);
    } catch (const Aborted&) {
      break;
    }
    groups.pop_front();
    finish(lock, *work);
  }
  for (const auto& [group, work] : groups) finish(lock, *work);  // kernels leave
}

void NcclCommunicator::run_group(Lock& lock, const std::vector<NcclOperation>& group) {
  std::vector<std::pair<int, NcclOffer>> sends;
  std::vector<Receipt> receipts;
  for (const NcclOperation& operation : group) {
    const auto& [kind, from, to, bytes, type, op, peer] = operation;
    if (kind == NcclOperation::Kind::send) {
      sends.push_back({peer, {from, bytes, is_registered(from, bytes)}});
    } else if (kind == NcclOperation::Kind::receive) {
      receipts.push_back({operation, is_registered(to, bytes)});
    }
  }
  exchange(lock, sends, receipts);
  for (const NcclOperation& operation : group) {
    if (operation.kind == NcclOperation::Kind::send ||
        operation.kind == NcclOperation::Kind::receive) {
      continue;
    }
    run_collective(lock, operation);
  }
}

/// Offers all outgoing messages, takes all incoming ones, and waits until all of them are taken.
void NcclCommunicator::exchange(Lock& lock, std::vector<std::pair<int, NcclOffer>>& sends,
                                const std::vector<Receipt>& receipts) {
  const auto withdraw = [&] {
    for (auto& [peer, offer] : sends) std::erase(world->offers[{rank, peer}], &offer);
  };
  const auto wait = [&](const auto& condition) {
    model_changed.wait(lock, [&] { return aborted || condition(); });
    if (!aborted) return;
    withdraw();
    throw Aborted();
  };
  for (auto& [peer, offer] : sends) world->offers[{rank, peer}].push_back(&offer);
  model_changed.notify_all();
  for (const auto& [receipt, registered_here] : receipts) {
    auto& queue = world->offers[{receipt.peer, rank}];
    wait([&] { return !queue.empty(); });
    NcclOffer& offer = *queue.front();
    if (offer.bytes != receipt.bytes) error = ncclInvalidUsage;  // NCCL would hang, or worse
    EXPECT_EQ(offer.registered, registered_here)
        << "what rank " << receipt.peer << " passed to NCCL is " << (offer.registered ? "" : "not ")
        << "registered there, and that of rank " << rank << (registered_here ? " is" : " is not");
    std::memcpy(receipt.to, offer.from, std::min(offer.bytes, receipt.bytes));
    offer.taken = true;
    queue.pop_front();
    model_changed.notify_all();
  }
  wait([&] {
    return std::ranges::all_of(sends, [](const auto& send) { return send.second.taken; });
  });
}

/// Every rank gets what all have, and computes what it needs.
void NcclCommunicator::run_collective(Lock& lock, const NcclOperation& operation) {
  using Kind = NcclOperation::Kind;
  const auto ranks = static_cast<std::size_t>(world->size);
  const bool scatters = operation.kind == Kind::reduce_scatter;
  const std::size_t bytes = operation.bytes * (scatters ? ranks : 1);
  const auto* const own = static_cast<const std::byte*>(operation.from);
  std::vector<std::vector<std::byte>> all(ranks, std::vector<std::byte>(own, own + bytes));
  std::vector<std::pair<int, NcclOffer>> sends;
  std::vector<Receipt> receipts;
  const std::size_t arriving =
      operation.bytes * (operation.kind == Kind::all_gather ? ranks : std::size_t{1});
  const bool registered_from = is_registered(operation.from, bytes);
  EXPECT_EQ(registered_from, is_registered(operation.to, arriving))
      << "rank " << rank << " has registered one buffer of a collective alone";
  const std::vector<std::byte> sent(own, own + bytes);  // `to` may overlap what others read
  for (int peer = 0; peer < world->size; ++peer) {
    if (peer == rank) continue;
    sends.push_back({peer, {sent.data(), bytes, registered_from}});
    receipts.push_back({{.kind = Kind::receive,
                         .from = nullptr,
                         .to = all[static_cast<std::size_t>(peer)].data(),
                         .bytes = bytes,
                         .type = ncclUint8,
                         .op = ncclSum,
                         .peer = peer},
                        registered_from});
  }
  exchange(lock, sends, receipts);
  auto* const to = static_cast<std::byte*>(operation.to);
  if (operation.kind == Kind::all_gather) {
    for (std::size_t r = 0; r < ranks; ++r) std::memcpy(to + r * bytes, all[r].data(), bytes);
    return;
  }
  const std::size_t count = bytes / nccl_bytes_of(operation.type);
  for (std::size_t r = 1; r < ranks; ++r) {
    reduce(operation.op, operation.type, all[0].data(), all[r].data(), count);
  }
  if (operation.kind == Kind::reduce && operation.peer != rank) return;
  const std::size_t begin = scatters ? operation.bytes * static_cast<std::size_t>(rank) : 0;
  std::memcpy(to, all[0].data() + begin, operation.bytes);
}

}  // namespace winnow::tests
