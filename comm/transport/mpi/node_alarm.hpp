// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace winnow::comm {

/// A word that processes of one machine share: whether one of them has aborted. Looking at it takes
/// no call, where a probe for a message lets MPI work and, on shared cores, yields. One process
/// makes the word, the others open it by its address while its maker has it `open_to_others`.
class NodeAlarm {
 public:
  /// Where others of the machine find the word. With other namespaces of processes, or other users,
  /// they find nothing, or something else without the token.
  struct Address {
    std::uint64_t token = 0;
    pid_t process = 0;
    int descriptor = -1;  ///< of that process; -1: there is no word
  };

  NodeAlarm() = default;  // no word
  NodeAlarm(NodeAlarm&& other) noexcept;
  NodeAlarm& operator=(NodeAlarm&& other) noexcept;
  ~NodeAlarm();

  /// Has no word if the system gives none.
  static NodeAlarm make();
  /// Has no word if none is found there.
  static NodeAlarm open(const Address& address);

  explicit operator bool() const { return shared_ != nullptr; }
  /// Of a word that this process has made, and that is open to others.
  Address address() const;
  void close_to_others() noexcept;

  /// There must be a word. Any thread.
  void raise() noexcept;
  bool raised() const noexcept;

 private:
  struct Shared;

  NodeAlarm(Shared* shared, int descriptor) : shared_(shared), descriptor_(descriptor) {}
  static Shared* map(int descriptor) noexcept;

  Shared* shared_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace winnow::comm
