// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/workspace.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <winnow/error.hpp>

#include "kernels/exec/host_memory.hpp"
#include "kernels/exec/keep_for_ever.hpp"
#include "kernels/exec/workspace_internal.hpp"

namespace winnow {

namespace {
constexpr std::size_t kSmallestBlock = std::size_t{64} << 10;

/// The source of a lent piece: its memory is another workspace's, and there is no more.
constexpr MemorySource kLent{.allocate = [](std::size_t) -> std::byte* { throw std::bad_alloc(); },
                             .release = [](std::byte*) noexcept {}};
}  // namespace

Workspace::Workspace() : Workspace(kernels::kHostMemory) {}
Workspace::Workspace(const MemorySource& source) : source_(source) {}
Workspace::~Workspace() {
  release();
}

void Workspace::release() noexcept {
  if (abandoned_) {
    for (const Block& block : blocks_) kernels::keep_for_ever(block.memory);
    return;
  }
  for (Block& block : blocks_) {
    block.registration.reset();
    source_.release(block.memory);
  }
  blocks_.clear();
}

std::size_t Workspace::capacity() const noexcept {
  std::size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.bytes;
  return bytes;
}

void Workspace::add_block(std::size_t bytes) {
  blocks_.reserve(blocks_.size() + 1);
  std::unique_ptr<std::byte, void (*)(std::byte*) noexcept> memory(source_.allocate(bytes),
                                                                   source_.release);
  std::shared_ptr<void> registration;
  if (registrar_) registration = registrar_({memory.get(), bytes});
  blocks_.push_back({memory.release(), bytes, 0, std::move(registration)});
  ++allocations_;
}

void Workspace::Internal::set_registrar(Workspace& workspace, MemoryRegistrar registrar) {
  for (Block& block : workspace.blocks_) block.registration.reset();
  workspace.registrar_ = std::move(registrar);
  if (!workspace.registrar_) return;
  for (Block& block : workspace.blocks_) {
    block.registration = workspace.registrar_({block.memory, block.bytes});
  }
}

bool Workspace::Internal::holds(const Workspace& workspace, const std::byte* memory) noexcept {
  return std::ranges::any_of(workspace.blocks_, [memory](const Block& block) {
    const std::less<> before;  // a total order of pointers
    return !before(memory, block.memory) && before(memory, block.memory + block.bytes);
  });
}

/// Makes a block with so many unused bytes the current one.
void Workspace::find_block(std::size_t bytes) {
  while (current_ < blocks_.size() && blocks_[current_].bytes - blocks_[current_].used < bytes) {
    if (++current_ < blocks_.size()) blocks_[current_].used = 0;
  }
  if (current_ == blocks_.size()) {
    // The host's memory is doubled, for what is not touched costs nothing; a device's is not.
    const std::size_t spare = source_.is_device ? 0 : capacity();
    add_block(std::max({bytes, kSmallestBlock, spare}));
  }
}

std::span<const std::unique_ptr<Workspace>> Workspace::Internal::lend(Workspace& workspace,
                                                                      std::size_t count,
                                                                      std::size_t bytes) {
  auto& all = workspace.lent_;
  while (all.size() < count) all.push_back(std::make_unique<Workspace>(kLent));
  const auto lent = std::span(all).first(count);
  for (const auto& piece : lent) {
    piece->current_ = 0;
    piece->blocks_.assign(1, {workspace.take_bytes(bytes), bytes, 0});
  }
  return lent;
}

void Workspace::merge_blocks() noexcept {
  if (abandoned_) return;
  const std::size_t bytes = capacity();
  release();
  current_ = 0;
  try {
    add_block(bytes);
  } catch (...) {
    // Scratch is taken again, block by block, by the next pass.
  }
}

}  // namespace winnow
