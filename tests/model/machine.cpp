// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/model/machine.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/simulated/fiber.hpp"

namespace winnow::tests {

namespace {

using simt::kLanes;
using simt::kThreads;

constexpr std::uint64_t kMostIdle = 500'000;  // polls in a row of words that nobody publishes
constexpr unsigned kSwitch = 4;               // a random order stops at one in so many points
constexpr std::byte kGarbage{0xa5};

enum class Call { none, shuffle, ballot, reduce };

struct Thread;

/// Threads that wait until a group is complete. Two generations can be in flight: threads that
/// still have to read one, and threads that already write the next.
struct Meeting {
  std::vector<Thread*> waiting;
  unsigned generation = 0;
};

struct Warp : Meeting {
  Call call = Call::none;
  std::uint64_t said[2][kLanes] = {};
};

struct Block : Meeting {
  std::size_t slot = 0;
  unsigned index = 0;
  unsigned ended = 0;
  bool any[2] = {};
  std::vector<std::max_align_t> shared;
  Warp warps[simt::kWarps];
};

struct Copy {
  std::uint32_t* to;
  const void* from;
};

struct Thread {
  comm::Fiber* fiber = nullptr;  // once it has begun
  Block* block = nullptr;
  unsigned index = 0;
  int barriers = 0;
  std::vector<Copy> copies = {};  // that it has not waited for
};

// The running machine and thread. A launch stays on its host thread.
thread_local Machine::Impl* machine = nullptr;
thread_local Thread* current = nullptr;

}  // namespace

struct Machine::Impl {
  SimtOrder order;
  std::mt19937 random;
  const std::function<void(void*)>* kernel = nullptr;
  std::size_t shared_bytes = 0;
  std::vector<unsigned> turns;  // block indices, in the order in which they start
  std::size_t started = 0;
  std::vector<std::unique_ptr<Block>> slots;
  std::deque<Thread> threads;  // of slot s: from s * kThreads on
  std::deque<Thread*> ready;
  Thread* next = nullptr;  // picked, but to run on another fiber
  std::vector<std::unique_ptr<comm::Fiber>> fibers;
  std::vector<comm::Fiber*> free;
  std::string problem;
  std::size_t ended = 0;
  std::uint64_t idle_looks = 0;
  int barriers = 0;
  int skipped_barrier = -1;

  /// A fiber's body. It waits here between launches and may resume on another host thread, so it
  /// keeps no thread-local state.
  [[noreturn]] void serve(std::size_t number) {
    while (true) {
      run_threads();
      free.push_back(fibers[number].get());
      fibers[number]->suspend();
    }
  }

  /// Runs the current thread, and then others on the same stack as long as the picked one has not
  /// begun on another stack: threads that never wait cost no switch.
  [[gnu::noinline]] void run_threads() {
    comm::Fiber* const fiber = current->fiber;
    while (true) {
      (*kernel)(current->block->shared.data());
      end(*current);
      next = ready.empty() ? nullptr : pick();
      if (next == nullptr || next->fiber != nullptr) return;
      current = std::exchange(next, nullptr);
      current->fiber = fiber;
    }
  }

  comm::Fiber* take_fiber() {
    if (free.empty()) {
      const std::size_t number = fibers.size();
      fibers.push_back(std::make_unique<comm::Fiber>([this, number] { serve(number); }));
      free.push_back(fibers.back().get());
    }
    comm::Fiber* const fiber = free.back();
    free.pop_back();
    return fiber;
  }

  /// Ends a thread, and perhaps its block, after which another may start.
  void end(const Thread& thread) {
    barriers = std::max(barriers, thread.barriers);
    Block& block = *thread.block;
    if (++block.ended < kThreads) return;
    block.ended = 0;
    ++ended;
    if (started < turns.size()) start(block);
  }

  void start(Block& block) {
    block.index = turns[started++];
    block.shared.resize(shared_bytes / sizeof(std::max_align_t) + 1);
    std::fill_n(reinterpret_cast<std::byte*>(block.shared.data()), shared_bytes, kGarbage);
    for (unsigned t = 0; t < kThreads; ++t) {
      Thread& thread = threads[block.slot * kThreads + t];
      thread = {.fiber = nullptr, .block = &block, .index = t};
      block.waiting.push_back(&thread);
    }
    release(block.waiting);
  }

  /// Runs until the launch ends or a problem occurs.
  void run() {
    while (problem.empty() && ended < turns.size()) {
      current = std::exchange(next, nullptr);
      if (current == nullptr && ready.empty()) {
        problem = who_waits();
        return;
      }
      if (current == nullptr) current = pick();
      if (current->fiber == nullptr) current->fiber = take_fiber();
      current->fiber->resume();
    }
  }

  Thread* pick() {
    Thread* thread;
    if (order.pick == SimtOrder::Pick::ascending) {
      thread = ready.front();
      ready.pop_front();
      return thread;
    }
    if (order.pick == SimtOrder::Pick::random) {
      std::swap(ready[random() % ready.size()], ready.back());
    }
    thread = ready.back();
    ready.pop_back();
    return thread;
  }

  /// Makes threads of a block ready. With Pick::warps, warp by warp at random: the last in is the
  /// first out, and so are threads that their warp lets go on.
  void release(std::vector<Thread*>& them) {
    if (order.pick == SimtOrder::Pick::warps) {
      std::array<std::uint32_t, simt::kWarps> turn{};
      std::generate(turn.begin(), turn.end(), std::ref(random));
      std::sort(them.begin(), them.end(), [&turn](const Thread* a, const Thread* b) {
        const unsigned of_a = a->index / kLanes, of_b = b->index / kLanes;
        return of_a != of_b ? turn[of_a] < turn[of_b] : a->index < b->index;
      });
    }
    ready.insert(ready.end(), them.begin(), them.end());
    them.clear();
  }

  bool by_chance() const { return order.pick >= SimtOrder::Pick::random; }

  /// The calling fiber never resumes, so nothing on its stack may own memory.
  void fail(std::string_view what) {
    problem = what;
    current->fiber->suspend();  // for ever
  }

  /// Waits until `size` threads have come.
  void meet(Meeting& meeting, std::size_t size) {
    if (meeting.waiting.size() + 1 < size) {
      meeting.waiting.push_back(current);
      current->fiber->suspend();
      return;
    }
    ++meeting.generation;
    release(meeting.waiting);
    switch_point(true);
  }

  /// Lets all other runnable threads go first.
  void stop_here() {
    if (order.pick == SimtOrder::Pick::descending || order.pick == SimtOrder::Pick::warps) {
      ready.push_front(current);
    } else {
      ready.push_back(current);
    }
    current->fiber->suspend();
  }

  bool barrier(bool mine) {
    if (current->barriers++ == skipped_barrier) return mine;
    Block& block = *current->block;
    bool& any = block.any[block.generation % 2];
    if (block.waiting.empty()) any = false;
    any = any || mine;
    meet(block, kThreads);
    return any;
  }

  const std::uint64_t* exchange(Call call, std::uint64_t mine) {
    Warp& warp = current->block->warps[current->index / kLanes];
    if (!warp.waiting.empty() && warp.call != call) {
      fail("threads of a warp are in different collective calls");
    }
    warp.call = call;
    std::uint64_t* const said = warp.said[warp.generation % 2];
    said[current->index % kLanes] = mine;
    meet(warp, kLanes);
    return said;
  }

  void switch_point(bool progress) {
    if (progress) idle_looks = 0;
    if (by_chance() && random() % kSwitch == 0) stop_here();
  }

  std::string who_waits() const {
    std::size_t gone = 0, barrier = 0, warp = 0;
    for (const auto& block : slots) {
      gone += block->ended;
      barrier += block->waiting.size();
      for (const Warp& w : block->warps) warp += w.waiting.size();
    }
    return "nobody can go on: " + std::to_string(barrier) + " threads wait at a barrier, " +
           std::to_string(warp) + " in a warp, " + std::to_string(gone) + " have ended";
  }
};

std::ostream& operator<<(std::ostream& out, const SimtOrder& order) {
  constexpr const char* kNames[] = {"ascending", "descending", "random", "warps"};
  out << kNames[static_cast<std::size_t>(order.pick)] << " order, " << order.resident
      << " blocks at a time, seed " << order.seed;
  return out;
}

Machine::Machine(const SimtOrder& order) : impl_(std::make_unique<Impl>()) {
  impl_->order = order;
  impl_->random.seed(order.seed);
}
Machine::~Machine() = default;

void Machine::skip_barrier(int barrier) {
  impl_->skipped_barrier = barrier;
}

int Machine::barriers() const {
  return impl_->barriers;
}

void Machine::run(unsigned blocks, std::size_t shared_bytes,
                  const std::function<void(void*)>& kernel) {
  Impl& m = *impl_;
  m.kernel = &kernel;
  m.shared_bytes = shared_bytes;
  m.problem.clear();
  m.started = m.ended = 0;
  m.idle_looks = 0;
  m.barriers = 0;
  m.turns.resize(blocks);
  std::iota(m.turns.begin(), m.turns.end(), 0U);
  if (m.by_chance()) std::shuffle(m.turns.begin(), m.turns.end(), m.random);
  if (m.order.pick == SimtOrder::Pick::descending) std::reverse(m.turns.begin(), m.turns.end());

  const std::size_t resident = std::min<std::size_t>(std::max(m.order.resident, 1U), blocks);
  while (m.slots.size() < resident) {
    m.slots.push_back(std::make_unique<Block>());
    m.slots.back()->slot = m.slots.size() - 1;
    m.threads.resize(m.slots.size() * kThreads);
  }
  for (std::size_t slot = 0; slot < resident; ++slot) m.start(*m.slots[slot]);

  machine = &m;
  m.run();
  machine = nullptr;
  current = nullptr;
  if (m.problem.empty()) return;
  m.ready.clear();
  m.next = nullptr;
  m.slots.clear();
  m.threads.clear();
  m.free.clear();
  m.fibers.clear();  // some can never resume
  throw SimtError(m.problem);
}

}  // namespace winnow::tests

namespace winnow::simt {

using tests::current;
using tests::machine;

unsigned thread() {
  return current->index;
}
unsigned block() {
  return current->block->index;
}
unsigned blocks() {
  return static_cast<unsigned>(machine->turns.size());
}
void barrier() {
  (void)machine->barrier(false);
}
bool barrier_or(bool mine) {
  return machine->barrier(mine);
}
std::uint64_t shuffle_xor_bits(std::uint64_t mine, unsigned mask) {
  const unsigned lane = current->index % kLanes;
  return machine->exchange(tests::Call::shuffle, mine)[lane ^ mask];
}
const std::uint64_t* all_of_warp(std::uint64_t mine) {
  return machine->exchange(tests::Call::reduce, mine);
}
std::uint32_t ballot(bool mine) {
  const std::uint64_t* const said = machine->exchange(tests::Call::ballot, mine ? 1 : 0);
  std::uint32_t votes = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    votes |= static_cast<std::uint32_t>(said[lane]) << lane;
  }
  return votes;
}

namespace {
template <class Word, class Change>
Word change_atomically(Word* at, const Change& change) {
  machine->switch_point(false);
  const Word before = *at;
  *at = change(before);
  machine->switch_point(true);
  return before;
}
}  // namespace

std::uint32_t atomic_add(std::uint32_t* at, std::uint32_t value) {
  return change_atomically(at, [=](std::uint32_t x) { return x + value; });
}
std::uint32_t atomic_max(std::uint32_t* at, std::uint32_t value) {
  return change_atomically(at, [=](std::uint32_t x) { return std::max(x, value); });
}
std::uint32_t atomic_or(std::uint32_t* at, std::uint32_t value) {
  return change_atomically(at, [=](std::uint32_t x) { return x | value; });
}
std::uint64_t atomic_add(std::uint64_t* at, std::uint64_t value) {
  return change_atomically(at, [=](std::uint64_t x) { return x + value; });
}
void switch_point(bool progress) {
  machine->switch_point(progress);
}
void idle() {
  if (++machine->idle_looks > tests::kMostIdle) machine->fail("threads spin for ever");
  machine->stop_here();
}
/// As late as can be, or, in a random order, at once.
void copy_word(std::uint32_t* to, const void* from) {
  expect_aligned(from, sizeof *to);
  if (machine->by_chance() && machine->random() % 2 == 0) {
    std::memcpy(to, from, sizeof *to);
  } else {
    current->copies.push_back({to, from});
  }
}
void await_copies() {
  for (const tests::Copy& copy : current->copies) std::memcpy(copy.to, copy.from, sizeof *copy.to);
  current->copies.clear();
}
void expect_aligned(const void* at, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0) {
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), "an access of %zu bytes is not aligned", bytes);
    machine->fail(text.data());
  }
}

}  // namespace winnow::simt
