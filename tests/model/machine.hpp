// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <type_traits>

#include "kernels/cuda/simt.hpp"

namespace winnow::tests {

/// The order in which threads run. Each goes on until it waits for others. In the random orders it
/// may also stop wherever threads can meet (atomics, published words), and blocks start shuffled.
struct SimtOrder {
  enum class Pick {
    ascending,
    descending,
    random,  ///< any thread that can go on
    warps,   ///< any of a random warp, as long as it can: some warps are far ahead of others
  } pick = Pick::ascending;
  std::uint32_t seed = 0;  ///< for the random orders
  unsigned resident = 1;   ///< blocks that run at a time
};
std::ostream& operator<<(std::ostream& out, const SimtOrder& order);

/// Threads that wait for ever, or threads of a warp in different collective calls.
struct SimtError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A model of a GPU: runs kernels of kernels/cuda (see simt.hpp there) on the host, one fiber per
/// thread. Memory is sequentially consistent, so it reveals missing barriers and wrong logic, but
/// not missing fences. Shared memory starts as garbage. One launch at a time; several machines may
/// run at once, each on its own host thread.
class Machine {
 public:
  explicit Machine(const SimtOrder& order = {});
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Runs a kernel to its end. Throws SimtError.
  template <class Kernel>
  void launch(unsigned blocks, const Kernel& kernel) {
    using Shared = simt::SharedOf<Kernel>;
    static_assert(std::is_trivial_v<Shared>);
    run(blocks, sizeof(Shared),
        [&kernel](void* shared) { simt::run(kernel, *static_cast<Shared*>(shared)); });
  }

  /// Runs a kernel that takes its block's shared memory.
  void run(unsigned blocks, std::size_t shared_bytes, const std::function<void(void*)>& kernel);

  /// From now on each thread of a launch skips this barrier, counted from 0; none if negative. A
  /// test must then fail.
  void skip_barrier(int barrier);
  /// The most barriers that a thread of the last launch met.
  int barriers() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow::tests
