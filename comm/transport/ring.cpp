// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/ring.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/reduce.hpp"

namespace winnow::comm {

namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{256} << 10;  // stays in the second-level cache
constexpr std::uint64_t kDepth = 4;                              // blocks under way at once

}  // namespace

void reduce_block(Transport&, const Exec& exec, ReduceOp op, const Elements& own,
                  const Elements& arrived) {
  kernels::reduce(exec, op, own, arrived);
}

// The ring. P ranks; `elements` cut into P chunks, each chunk into `blocks` blocks of at most
// `block` elements. In step s rank r sends chunk r-1-s to r+1 and receives chunk r-2-s from r-1
// (mod P):
//   steps 0 .. P-2: the rank adds (by op) what arrives to its own chunk; chunk c starts at rank c+1
//   and is complete at rank c.
//   steps P-1 .. 2P-3: what arrives is complete, and the rank stores it.
// reduce_scatter is the first half, all_gather the second, all_reduce both without a break. Item i
// is block i mod blocks of step i / blocks. It sends what item i - blocks received, so up to
// `blocks` items may be under way; `depth` are, and adding one overlaps the transfer of the next. A
// block is received in place only after its former content was sent, P-1 steps ago.
void run_ring(const Ring& ring) {
  Transport& transport = ring.transport;
  const int size = transport.size(), rank = transport.rank();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const std::uint64_t count = ring.elements.size();
  const std::size_t unit = bytes_of(ring.elements.type());
  const Chunk longest = ring_chunk(count, 0, size);
  const std::uint64_t most = kBlockBytes / unit;
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
    return ring.elements.subspan(from, to - from);
  };
  const auto step = [&](std::uint64_t item) { return static_cast<int>(item / blocks); };
  const auto sent = [&](std::uint64_t i) { return block_of(i, rank - 1 - step(i)); };
  const auto received = [&](std::uint64_t i) { return block_of(i, rank - 2 - step(i)); };

  std::span<std::byte> scratch;
  if (begin < first_stored) {
    scratch = kernels::scratch_of(ring.exec).take<std::byte>(depth * block * unit);
  }
  const auto arrives = [&](std::uint64_t i) {
    const std::span<std::byte> place = received(i).bytes();
    return i < first_stored ? scratch.subspan(i % depth * block * unit, place.size()) : place;
  };

  std::array<Ticket, kDepth> tickets;
  std::array<std::uint64_t, kDepth> sizes{};
  std::uint64_t posted = begin;
  for (std::uint64_t i = begin; i < end; ++i) {
    for (; posted < std::min(i + depth, end); ++posted) {
      transport.send(sent(posted).bytes(), next);
      transport.recv(arrives(posted), previous, &sizes[posted % depth]);
      tickets[posted % depth] = transport.start(ring.exec);
    }
    transport.wait(tickets[i % depth], ring.deadline);
    const Elements own = received(i);
    if (sizes[i % depth] != own.bytes().size()) {
      fail_by({"rank " + std::to_string(previous) + " sent a block of " +
                   std::to_string(sizes[i % depth]) + " bytes where rank " + std::to_string(rank) +
                   " expects " + std::to_string(own.bytes().size()),
               FailureKind::usage});
    }
    if (i >= first_stored) continue;
    ring.combine(transport, ring.exec, ring.op, own, {arrives(i).data(), own.size(), own.type()});
  }
}

void reduce_ring(const Ring& ring) {
  const Exec& exec = ring.exec;
  Workspace& workspace = kernels::scratch_of(exec);
  kernels::expect_reducible(ring.elements.type(), ring.op);
  if (ring.transport.size() == 1 || ring.elements.size() == 0) return;
  const Workspace::Scope scope(workspace);
  run_ring(ring);
}

}  // namespace winnow::comm
