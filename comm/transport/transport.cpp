// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/transport.hpp"

#include <cstring>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/topology.hpp>

#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/expect.hpp"
#include "comm/transport/failure.hpp"
#include "comm/transport/gather_values.hpp"
#include "comm/transport/occupancy.hpp"
#include "comm/transport/ring.hpp"
#include "comm/transport/subset.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/reduce.hpp"

namespace winnow {

Transport::Transport() : occupancy_(std::make_shared<comm::Occupancy>()) {}

namespace {

constexpr std::size_t kDirectBytes = 1 << 12;  // up to this size latency costs more than bandwidth

/// An all_reduce in one step and in the ring's order.
void reduce_in_one_step(Transport& transport, const Exec& exec, const Elements& elements,
                        ReduceOp op, Deadline deadline) {
  kernels::expect_reducible(elements.type(), op);
  Workspace& workspace = kernels::scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const int size = transport.size();
  const std::size_t bytes = elements.bytes().size();
  const auto all = workspace.take<std::byte>(static_cast<std::size_t>(size) * bytes);
  transport.Transport::all_gather(exec, elements.bytes(), all, deadline);
  for (int owner = 0; owner < size; ++owner) {
    const Chunk chunk = ring_chunk(elements.size(), owner, size);
    if (chunk.begin == chunk.end) continue;
    const auto of_rank = [&](int rank) {
      std::byte* const data = all.data() + static_cast<std::size_t>(rank % size) * bytes;
      return Elements(data, elements.size(), elements.type())
          .subspan(chunk.begin, chunk.end - chunk.begin);
    };
    for (int step = 2; step <= size; ++step)
      kernels::reduce(exec, op, of_rank(owner + step), of_rank(owner + step - 1));
    kernels::copy(exec, elements.subspan(chunk.begin, chunk.end - chunk.begin).bytes(),
                  of_rank(owner).bytes());
  }
}

}  // namespace

void Transport::enqueue_all_gather(std::span<std::byte> all, std::size_t message_bytes,
                                   std::span<std::uint64_t> received) {
  const auto ranks = static_cast<std::size_t>(size()), self = static_cast<std::size_t>(rank());
  const std::size_t slot_bytes = comm::expect_slots(all.size(), message_bytes, size());
  const auto message = [&](std::size_t of) { return all.subspan(of * slot_bytes, message_bytes); };
  received[self] = message_bytes;
  // Each rank starts with another peer, so that none is everybody's first.
  for (std::size_t distance = 1; distance < ranks; ++distance) {
    const std::size_t to = (self + distance) % ranks, from = (self + ranks - distance) % ranks;
    send(message(self), static_cast<int>(to));
    recv(message(from), static_cast<int>(from), &received[from]);
  }
}

void Transport::all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                           Deadline deadline) {
  comm::expect_memory(elements);
  comm::abort_on_error(*this, [&] {
    if (reduces_in_one_step(elements.size(), bytes_of(elements.type()), size())) {
      reduce_in_one_step(*this, exec, elements, op, deadline);
    } else {
      comm::reduce_ring({*this, exec, elements, op, 0, 2 * size() - 2, deadline});
    }
  });
}

void Transport::reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline) {
  comm::expect_memory(Elements(elements));
  comm::abort_on_error(*this, [&] {
    comm::reduce_ring({*this, exec, elements, ReduceOp::sum, 0, size() - 1, deadline});
  });
}

void Transport::all_gather(const Exec& exec, std::span<const std::byte> mine,
                           std::span<std::byte> all, Deadline deadline) {
  comm::expect_gatherable(mine.size(), all.size(), size());
  comm::expect_memory(all);
  comm::expect_memory(mine);
  if (mine.empty()) return;
  std::byte* own = all.data() + static_cast<std::size_t>(rank()) * mine.size();
  if (own != mine.data() && exec.place == Place::cuda) {
    kernels::copy(exec, {own, mine.size()}, mine);
  } else if (own != mine.data()) {
    std::memmove(own, mine.data(), mine.size());
  }
  if (size() == 1) return;
  if (mine.size() > kDirectBytes) {
    comm::abort_on_error(*this, [&] {
      comm::run_ring({.transport = *this,
                      .exec = exec,
                      .elements = {all.data(), all.size(), ElementType::uint8},
                      .op = ReduceOp::sum,  // combines nothing: what arrives is stored
                      .first_step = size() - 1,
                      .last_step = 2 * size() - 2,
                      .deadline = deadline});
    });
    return;
  }
  // As many bytes as round the ring, in one step instead of P-1.
  gathered_.resize(static_cast<std::size_t>(size()));
  comm::abort_on_error(*this, [&] {
    Transport::enqueue_all_gather(all, mine.size(), gathered_);
    wait(start(exec), deadline);
    for (std::size_t peer = 0; peer < gathered_.size(); ++peer) {
      if (gathered_[peer] == mine.size()) continue;
      comm::fail_by({"rank " + std::to_string(peer) + " gathers " +
                         std::to_string(gathered_[peer]) + " bytes, rank " +
                         std::to_string(rank()) + " " + std::to_string(mine.size()),
                     FailureKind::usage});
    }
  });
}

std::unique_ptr<Transport> Transport::subset(std::span<const int> ranks) {
  return comm::make_subset(*this, ranks);
}

std::unique_ptr<Transport> Transport::duplicate(Deadline) {
  fail_usage(
      "this transport has no duplicates: duplicate the one that it was made from, or make another");
}

Topology discover(Transport& transport, Deadline deadline) {
  const comm::Quiet quiet(transport);
  return Topology::from_nodes(comm::gather_values(transport, transport.node(), deadline));
}

}  // namespace winnow
