// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/arithmetic/divisor.hpp"

namespace winnow::kernels {

/// Which owner sums which of `count` positions. Positions form units of 64, units form groups of
/// `owners`, and unit u of group g = floor(u / owners) belongs to owner (u + hash(g)) mod owners: a
/// closed form that gives every owner one unit of each whole group and shares out rows, columns,
/// strides and dense blocks of a support alike. An owner numbers its own positions locally, in
/// order: those of group g are 64 g, 64 g + 1, ... With one owner, local positions are positions.
class Partition {
 public:
  static constexpr std::uint64_t kUnit = 64;

  constexpr Partition(std::uint32_t owners, std::uint64_t count) : owners_(owners), count_(count) {}

  constexpr std::uint32_t owners() const { return owners_.number(); }
  constexpr std::uint64_t count() const { return count_; }
  constexpr std::uint64_t units() const { return (count_ + kUnit - 1) / kUnit; }
  constexpr std::uint64_t groups() const { return (units() + owners() - 1) / owners_; }

  constexpr std::uint32_t owner_of_unit(std::uint64_t unit) const {
    const auto [group, place] = owners_.of(unit);
    const std::uint32_t from_end = owners() - turn(group);
    return place < from_end ? place + owners() - from_end : place - from_end;
  }
  /// The unit of `owner` in a group; units() or more if it has none there, which only happens in
  /// the last group.
  constexpr std::uint64_t unit_of(std::uint32_t owner, std::uint64_t group) const {
    const std::uint32_t first = turn(group);
    return group * owners() + (owner >= first ? owner - first : owner + owners() - first);
  }
  /// Positions of `owner`.
  constexpr std::uint64_t local_count(std::uint32_t owner) const {
    return local_before(owner, count_);
  }
  /// Positions of `owner` before a position.
  constexpr std::uint64_t local_before(std::uint32_t owner, std::uint64_t position) const {
    const std::uint64_t group = position / kUnit / owners_, first = unit_of(owner, group) * kUnit;
    const std::uint64_t past = position < first ? 0 : position - first;
    return group * kUnit + (past < kUnit ? past : kUnit);
  }
  /// The position whose local number is `local`, below local_count(owner).
  constexpr std::uint64_t position(std::uint32_t owner, std::uint64_t local) const {
    return unit_of(owner, local / kUnit) * kUnit + local % kUnit;
  }
  /// The local number of a position, with its owner.
  constexpr std::uint64_t local(std::uint64_t position) const {
    return position / kUnit / owners_ * kUnit + position % kUnit;
  }

 private:
  /// hash(group), below owners: who owns the first unit of a group. The finaliser of MurmurHash3
  /// (Appleby, 2011) parts groups that follow each other; a product brings it into range without a
  /// division (Lemire, Fast Random Integer Generation in an Interval, 2019).
  constexpr std::uint32_t turn(std::uint64_t group) const {
    auto h = static_cast<std::uint32_t>(group ^ group >> 32);
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return static_cast<std::uint32_t>(std::uint64_t{h ^ h >> 16} * owners() >> 32);
  }

  Divisor owners_;
  std::uint64_t count_;
};

}  // namespace winnow::kernels
