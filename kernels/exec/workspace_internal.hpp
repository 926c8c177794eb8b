// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <winnow/workspace.hpp>

namespace winnow {

/// Functions that the library calls, and no program.
struct Workspace::Internal {
  /// Takes `count` pieces of `bytes`, each as a workspace for one thread at a time, so that several
  /// can work at once. They are lent until the next call of `lend`, and what they lend out until
  /// the Scope ends. A piece never grows: std::bad_alloc where it is used up.
  static std::span<const std::unique_ptr<Workspace>> lend(Workspace& workspace, std::size_t count,
                                                          std::size_t bytes);

  /// Registers each block, present and future, until the block is freed or another registrar is
  /// set; an empty one registers nothing. Throws what the registrar throws, as taking memory then
  /// does, too.
  static void set_registrar(Workspace& workspace, MemoryRegistrar registrar);
  /// Whether blocks are registered and this memory lies in none of them. Data that a transport is
  /// to move is then copied here first: see Transport::registrar.
  static bool is_foreign(const Workspace& workspace, const std::byte* memory) noexcept {
    return workspace.registrar_ && !holds(workspace, memory);
  }

  /// Never frees memory again, not even in the destructor: for scratch that a transport may still
  /// access after a failure.
  static void abandon(Workspace& workspace) noexcept { workspace.abandoned_ = true; }

 private:
  static bool holds(const Workspace& workspace, const std::byte* memory) noexcept;
};

}  // namespace winnow
