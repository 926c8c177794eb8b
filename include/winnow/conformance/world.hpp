// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/transport.hpp>
#include <winnow/workspace.hpp>

// The ranks that the checks of winnow/conformance/transport.hpp run on. Header-only; needs
// GoogleTest.
namespace winnow::conformance {

using Bytes = std::vector<std::byte>;

inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}
inline Deadline briefly() {
  return Deadline::after(std::chrono::milliseconds(50));
}

/// The memory of one rank's messages. This one is the host's; derive from it for a device's.
class Memory {
 public:
  Memory() = default;
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// For starts and collectives, with the workspaces that collectives need.
  virtual Exec exec() { return {.workspace = &workspace_}; }
  /// Memory that lives as long as this.
  virtual std::span<std::byte> allocate(std::size_t bytes) { return blocks_.emplace_back(bytes); }
  /// Copies from host memory, ahead of what is enqueued on the stream of exec() from now on.
  virtual void write(std::span<std::byte> to, std::span<const std::byte> from) {
    std::ranges::copy(from, to.begin());
  }
  /// Copies what a wait has completed to host memory.
  virtual void read_received(std::span<std::byte> to, std::span<const std::byte> from) {
    std::ranges::copy(from, to.begin());
  }
  /// Copies the result of a collective to host memory.
  virtual void read_result(std::span<std::byte> to, std::span<const std::byte> from) {
    read_received(to, from);
  }

 protected:
  Workspace workspace_;

 private:
  std::deque<Bytes> blocks_;
};

/// A rank as a check sees it. Its memory outlives its transport, as Transport asks.
class Rank {
 public:
  Rank(Transport& transport, Memory& memory) : transport_(&transport), memory_(&memory) {}

  Transport& transport() const { return *transport_; }
  Exec exec() const { return memory_->exec(); }
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  /// The rank `steps` further on.
  int peer(int steps = 1) const { return (rank() + steps + size()) % size(); }
  /// This rank's memory with another transport, a subset say.
  Rank over(Transport& other) const { return {other, *memory_}; }

  Ticket start() const { return transport_->start(exec()); }
  void finish() const { transport_->wait(start(), soon()); }

  /// Memory that holds `values`.
  template <class T>
  std::span<T> place(const std::vector<T>& values) const {
    const std::span<std::byte> memory = memory_->allocate(values.size() * sizeof(T));
    memory_->write(memory, std::as_bytes(std::span(values)));
    return {reinterpret_cast<T*>(memory.data()), values.size()};
  }
  Bytes received(std::span<const std::byte> memory) const {
    Bytes host(memory.size());
    memory_->read_received(host, memory);
    return host;
  }
  template <class T>
  std::vector<T> result(std::span<const T> memory) const {
    std::vector<T> host(memory.size());
    memory_->read_result(std::as_writable_bytes(std::span(host)), std::as_bytes(memory));
    return host;
  }

 private:
  Transport* transport_;
  Memory* memory_;
};

using RankBody = std::function<void(const std::shared_ptr<Transport>&)>;

/// The ranks that checks run on, and what their transport leaves open.
struct World {
  /// The numbers of ranks to check; asked when a check runs.
  std::function<std::vector<int>()> rank_counts = [] { return std::vector{1, 2, 3, 4, 7}; };
  /// Runs `body` on every rank of a new world of `ranks` ranks, each with a new transport, once all
  /// are connected: a body may abort at once. Returns when all bodies are done and all transports
  /// destroyed. Rethrows what left a body.
  std::function<void(int ranks, const RankBody& body)> run;
  /// Makes the memory of the rank that calls it.
  std::function<std::unique_ptr<Memory>()> memory = [] { return std::make_unique<Memory>(); };
  /// Whether errors name ranks as those of Winnow's own transports do: "rank 1 aborted: ...".
  bool names_ranks = false;
  /// Names of checks to leave out: promises that the transport's documentation takes back.
  std::vector<std::string_view> left_out = {};
};

/// A World::run with a thread for each rank, over what `make(ranks)` returns: element i is rank
/// i's.
template <class Make>
auto on_threads(Make make) {
  return [make](int ranks, const RankBody& body) {
    auto made = make(ranks);
    std::vector<std::exception_ptr> errors(made.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < made.size(); ++i) {
      threads.emplace_back([&, i] {
        std::shared_ptr<Transport> transport = std::move(made[i]);
        try {
          body(transport);
        } catch (const std::exception& error) {
          errors[i] = std::current_exception();
          transport->abort(error.what());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  };
}

/// Runs `body` on all ranks of a world of each size.
inline void for_each_size(const World& world, const std::function<void(Rank&)>& body) {
  for (const int ranks : world.rank_counts()) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::mutex mutex;
    std::vector<std::unique_ptr<Memory>> memories;
    world.run(ranks, [&](const std::shared_ptr<Transport>& transport) {
      auto memory = world.memory();
      Rank rank(*transport, *memory);
      {
        const std::lock_guard lock(mutex);
        memories.push_back(std::move(memory));
      }
      body(rank);
    });
  }
}

}  // namespace winnow::conformance
