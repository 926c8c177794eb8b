// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm/node_group.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/failure.hpp"
#include "kernels/exec/pause.hpp"
#include "kernels/reduce.hpp"

// The memory: a board, a RankInfo for each rank, and rooms. Each rank has a room for its elements,
// and there is one more for what ranks reduce for each other; two of each, for calls of even and of
// odd number.
//
// A call: a rank copies its elements to its room, and arrives. When all have, it reads all rooms:
// whole, if they are small; otherwise it reduces its chunk of them, arrives again, and copies what
// all have reduced. So few elements cost each rank one wait for the others, whatever their number,
// where an algorithm of messages has at least log2(ranks).
//
// The next call may begin while others still read: it writes to the other rooms. The slots of the
// next call are free by then, since a rank arrives in a call only after it has read the slots of
// the last one.

namespace winnow::comm {

namespace {

constexpr std::size_t kLine = 64;                               // bytes; no two ranks write to one
constexpr std::size_t kMostRoom = std::size_t{256} << 10;       // beyond it MPI's way was as fast
constexpr std::size_t kMostMemory = std::size_t{16} << 20;      // of all rooms
constexpr std::size_t kMostReadWhole = std::size_t{128} << 10;  // bytes of all ranks
constexpr unsigned kPollsOfArrivals = 20;  // a rank that is waited for may need this core
constexpr unsigned kPollsPerLook = 64;

/// The values on which ranks must agree.
struct Shape {
  std::uint64_t bytes = 0;
  ElementType type = {};
  ReduceOp op = {};
  bool operator==(const Shape&) const = default;
};

std::size_t room_bytes(int ranks) {
  const std::size_t rooms = 2 * (static_cast<std::size_t>(ranks) + 1);
  return std::min(kMostRoom, kMostMemory / rooms / kLine * kLine);
}

}  // namespace

struct alignas(kLine) NodeGroup::Board {
  std::uint32_t alarm;
};

struct alignas(kLine) NodeGroup::RankInfo {
  std::uint64_t arrivals;
  std::array<Shape, 2> shapes;  // of calls of even and of odd number
};

std::size_t NodeGroup::memory_bytes(int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  return sizeof(Board) + count * sizeof(RankInfo) + 2 * (count + 1) * room_bytes(ranks);
}

NodeGroup::NodeGroup(NodeMemory memory, int rank, int ranks)
    : memory_(std::move(memory)), rank_(rank), ranks_(ranks), most_(room_bytes(ranks)) {}

NodeGroup::Board& NodeGroup::board() const {
  return *reinterpret_cast<Board*>(memory_.bytes().data());
}

NodeGroup::RankInfo& NodeGroup::info(int rank) const {
  return reinterpret_cast<RankInfo*>(memory_.bytes().data() + sizeof(Board))[rank];
}

void NodeGroup::raise_alarm() noexcept {
  std::atomic_ref(board().alarm).store(1, std::memory_order_release);
}

bool NodeGroup::alarm_is_raised() const noexcept {
  return std::atomic_ref(board().alarm).load(std::memory_order_acquire) != 0;
}

Elements NodeGroup::room(int rank, const Elements& like) const {
  const auto rooms = static_cast<std::size_t>(ranks_) + 1;
  const std::size_t number = calls_ % 2 * rooms + static_cast<std::size_t>(rank);
  std::byte* const first = memory_.bytes().data() + memory_.bytes().size() - 2 * rooms * most_;
  return {first + number * most_, like.size(), like.type()};
}

void NodeGroup::arrive(const std::function<void()>& look) {
  ++arrivals_;
  std::atomic_ref(info(rank_).arrivals).store(arrivals_, std::memory_order_release);
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::atomic_ref<std::uint64_t> theirs(info(rank).arrivals);
    for (unsigned polls = 1; theirs.load(std::memory_order_acquire) < arrivals_; ++polls) {
      if (polls < kPollsOfArrivals) {
        kernels::pause();
      } else {
        ::sched_yield();
      }
      if (polls % kPollsPerLook == 0) look();
    }
  }
}

void NodeGroup::expect_same_shape() const {
  const Shape& mine = info(rank_).shapes[calls_ % 2];
  for (int rank = 0; rank < ranks_; ++rank) {
    const Shape& theirs = info(rank).shapes[calls_ % 2];
    if (theirs == mine) continue;
    fail_by({"rank " + std::to_string(rank) + " reduces " + std::to_string(theirs.bytes) +
                 " bytes where rank " + std::to_string(rank_) + " reduces " +
                 std::to_string(mine.bytes) +
                 ", or elements of another type, or by another operation",
             FailureKind::usage});
  }
}

void NodeGroup::all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                           const std::function<void()>& look) {
  const std::size_t bytes = elements.bytes().size();
  ++calls_;
  std::memcpy(room(rank_, elements).bytes().data(), elements.bytes().data(), bytes);
  info(rank_).shapes[calls_ % 2] = {.bytes = bytes, .type = elements.type(), .op = op};
  arrive(look);
  expect_same_shape();
  // into = op over the rooms, of the elements from `begin` on.
  const auto reduce = [&](const Elements& into, std::uint64_t begin) {
    const auto of_rank = [&](int rank) { return room(rank, elements).subspan(begin, into.size()); };
    std::memcpy(into.bytes().data(), of_rank(0).bytes().data(), into.bytes().size());
    for (int rank = 1; rank < ranks_; ++rank) kernels::reduce(exec, op, into, of_rank(rank));
  };
  if (static_cast<std::size_t>(ranks_) * bytes <= kMostReadWhole) {
    reduce(elements, 0);
    return;
  }
  const Chunk own = ring_chunk(elements.size(), rank_, ranks_);
  const Elements all = room(ranks_, elements);
  reduce(all.subspan(own.begin, own.end - own.begin), own.begin);
  arrive(look);
  std::memcpy(elements.bytes().data(), all.bytes().data(), bytes);
}

}  // namespace winnow::comm
