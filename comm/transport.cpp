// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/transport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <winnow/error.hpp>

#include "comm/subset.hpp"
#include "kernels/residual_add.hpp"

namespace winnow {

namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{256} << 10;  // stays in the second-level cache
constexpr std::uint64_t kDepth = 4;                              // blocks under way at once
constexpr std::size_t kDirectBytes = 1 << 12;  // up to here latency, not bandwidth, is the cost

/// What one pass round the ring moves: `data` is count = data.size() / unit elements.
struct Ring {
  Transport& transport;
  const Exec& exec;
  std::span<std::byte> data;
  std::size_t unit;
  int first_step, last_step;
  Deadline deadline;
};

// The ring. P ranks, `data` cut into P chunks, each chunk into `blocks` blocks of at most `block`
// elements. In step s rank r sends chunk r-1-s to r+1 and receives chunk r-2-s from r-1 (mod P):
//   steps 0 .. P-2     what arrives is added to the rank's own chunk: chunk c starts at rank c+1
//                      and is complete at rank c;
//   steps P-1 .. 2P-3  what arrives is complete and is stored.
// reduce_scatter is the first half, all_gather the second, all_reduce both without a break.
// Item i is block i mod blocks of step i / blocks. Item i sends what item i - blocks received, so
// up to `blocks` items may be under way: `depth` of them are, and adding one overlaps the transfer
// of the next. A block is received in place only after its former content was sent, P-1 steps ago.
void run_ring(const Ring& ring) {
  Transport& transport = ring.transport;
  const int size = transport.size(), rank = transport.rank();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const std::uint64_t count = ring.data.size() / ring.unit;
  const Chunk longest = ring_chunk(count, 0, size);
  const std::uint64_t most = kBlockBytes / ring.unit;
  const std::uint64_t blocks = std::max<std::uint64_t>(1, (longest.end + most - 1) / most);
  const std::uint64_t block = (longest.end + blocks - 1) / blocks;
  const std::uint64_t depth = std::min(blocks, kDepth);
  const std::uint64_t begin = static_cast<std::uint64_t>(ring.first_step) * blocks;
  const std::uint64_t end = static_cast<std::uint64_t>(ring.last_step) * blocks;
  const std::uint64_t first_stored = static_cast<std::uint64_t>(size - 1) * blocks;

  const auto block_of = [&](std::uint64_t item, int owner) {
    const Chunk chunk = ring_chunk(count, (owner + 2 * size) % size, size);
    const std::uint64_t from = std::min(chunk.begin + item % blocks * block, chunk.end);
    const std::uint64_t to = std::min(from + block, chunk.end);
    return ring.data.subspan(from * ring.unit, (to - from) * ring.unit);
  };
  const auto step = [&](std::uint64_t item) { return static_cast<int>(item / blocks); };
  const auto sent = [&](std::uint64_t i) { return block_of(i, rank - 1 - step(i)); };
  const auto received = [&](std::uint64_t i) { return block_of(i, rank - 2 - step(i)); };

  std::span<std::byte> scratch;
  if (begin < first_stored)
    scratch = std::as_writable_bytes(ring.exec.workspace->take<float>(depth * block));
  const auto arrives = [&](std::uint64_t i) {
    const std::span<std::byte> place = received(i);
    return i < first_stored ? scratch.subspan(i % depth * block * ring.unit, place.size()) : place;
  };

  std::array<Ticket, kDepth> tickets;
  std::array<std::uint64_t, kDepth> sizes{};
  std::uint64_t posted = begin;
  for (std::uint64_t i = begin; i < end; ++i) {
    for (; posted < std::min(i + depth, end); ++posted) {
      transport.send(sent(posted), next);
      transport.recv(arrives(posted), previous, &sizes[posted % depth]);
      tickets[posted % depth] = transport.start(ring.exec);
    }
    transport.wait(tickets[i % depth], ring.deadline);
    if (sizes[i % depth] != received(i).size()) {
      throw CommError("rank " + std::to_string(previous) + " sent a block of " +
                      std::to_string(sizes[i % depth]) + " bytes where rank " +
                      std::to_string(rank) + " expects " + std::to_string(received(i).size()) +
                      ": they reduce different counts");
    }
    if (i >= first_stored) continue;
    const std::span<std::byte> own = received(i), other = arrives(i);
    kernels::residual_add(
        ring.exec, {reinterpret_cast<float*>(own.data()), own.size() / sizeof(float)},
        {reinterpret_cast<const float*>(other.data()), other.size() / sizeof(float)});
  }
}

void reduce_ring(Transport& transport, const Exec& exec, std::span<float> elements, int last_step,
                 Deadline deadline) {
  WINNOW_EXPECTS(exec.workspace != nullptr, "a ring reduction needs exec.workspace");
  WINNOW_EXPECTS(exec.place != Place::cuda,
                 "a ring reduction works in host memory; pass host memory and Place::cpu");
  if (transport.size() == 1 || elements.empty()) return;
  const Workspace::Scope scope(*exec.workspace);
  run_ring(
      {transport, exec, std::as_writable_bytes(elements), sizeof(float), 0, last_step, deadline});
}

}  // namespace

void Transport::all_reduce(const Exec& exec, std::span<float> elements, Deadline deadline) {
  reduce_ring(*this, exec, elements, 2 * size() - 2, deadline);
}

void Transport::reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline) {
  reduce_ring(*this, exec, elements, size() - 1, deadline);
}

void Transport::all_gather(const Exec& exec, std::span<const std::byte> mine,
                           std::span<std::byte> all, Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(size());
  WINNOW_EXPECTS(all.size() / ranks == mine.size() && all.size() % ranks == 0,
                 "all_gather of " + std::to_string(mine.size()) + " bytes from each of " +
                     std::to_string(ranks) + " ranks into " + std::to_string(all.size()) +
                     " bytes: must be as many from each");
  if (mine.empty()) return;
  std::byte* own = all.data() + static_cast<std::size_t>(rank()) * mine.size();
  if (own != mine.data()) std::memmove(own, mine.data(), mine.size());
  if (ranks == 1) return;
  if (mine.size() > kDirectBytes) {
    run_ring({*this, exec, all, 1, size() - 1, 2 * size() - 2, deadline});
    return;
  }
  // The same bytes as round the ring, in one step instead of P-1; peers in turn, so that not all
  // ranks begin with the same one.
  for (int distance = 1; distance < size(); ++distance) {
    const int to = (rank() + distance) % size(), from = (rank() + size() - distance) % size();
    send({own, mine.size()}, to);
    recv(all.subspan(static_cast<std::size_t>(from) * mine.size(), mine.size()), from, nullptr);
  }
  wait(start(exec), deadline);
}

std::unique_ptr<Transport> Transport::subset(std::span<const int> ranks) {
  return comm::make_subset(*this, ranks);
}

}  // namespace winnow
