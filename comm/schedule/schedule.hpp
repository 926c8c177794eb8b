// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>
#include <winnow/topology.hpp>

#include "comm/schedule/exchange.hpp"
#include "comm/schedule/rounds.hpp"

namespace winnow::comm {

/// What a schedule's cost depends on.
struct CostShape {
  int ranks = 1;
  std::uint64_t count = 0;             ///< positions of the part
  std::uint64_t k = 0;                 ///< elements kept of it
  compress::Codings codings = {};      ///< of its messages
  const Topology* topology = nullptr;  ///< of the ranks; null: each is a node of its own
  /// Chance that a rank keeps an element which another one keeps; none: that of supports which know
  /// nothing of each other, k / count.
  std::optional<double> overlap = {};
};

/// Who sends what to whom, in which order, so that every rank ends with the same sum: a line of
/// the table of schedules.
struct Schedule {
  std::string_view name;
  std::string_view summary;
  bool shared_out;  ///< positions have owners, who sum them
  /// Bytes that the busiest rank sends; where the shape of the support decides, those of a support
  /// that is spread evenly.
  std::uint64_t (*wire_bytes)(const CostShape&);
  /// One part on its way. Throws CommError or UsageError; the part's gradient is then in the
  /// residual or in Exchange::own, and what the elements hold does not matter.
  Rounds (*run)(Exchange&);
  /// Bytes that the busiest node sends to others.
  std::uint64_t (*network_bytes)(const CostShape&);
  /// Messages that the busiest rank sends.
  std::uint64_t (*messages)(const CostShape&);
  /// Bytes that a rank's passes over memory read and write, by comm/schedule/pass_bytes.hpp.
  double (*pass_bytes)(const CostShape&);
  /// Writes Exchange::sum times Exchange::factor to the elements when all parts of the bucket are
  /// done; until then they keep the gradient, or what is being summed in place. The Exec is the
  /// Exchange's, or with a condition by which this is done or not. Null: each part's sum is written
  /// as it is done.
  void (*write)(Exchange&, const Exec&) = nullptr;
  const Schedule* inner = nullptr;  ///< of one in two levels, between the nodes
  /// What a run of messages ends with: `gradient`, that of each rank; `sum`, that of each owner; or
  /// `partial`, one alone (a gradient still where there is one rank).
  compress::Header::Kind outcome = compress::Header::Kind::gradient;
  bool by_name = false;  ///< never chosen but by name: what it selects is another
  bool fixed_k = false;  ///< takes no compressor of any_k
  /// On a device, runs without an answer from there, if Exchange::verdict is.
  bool unseen = false;
};

std::span<const Schedule> schedules();

/// Throws UsageError for an unknown name, and names the nearest.
const Schedule& find_schedule(std::string_view name);

/// The schedules that Options::schedule leaves to choose from, in the order of the table: all that
/// are not taken by name alone for "auto" and "least_bytes", of these those between nodes for
/// "two_level", else the one of that name. Throws like find_schedule.
std::vector<const Schedule*> find_schedules(std::string_view name);

/// P - 1, and twice that.
std::uint64_t one_to_each_other(const CostShape& shape);
std::uint64_t two_to_each_other(const CostShape& shape);

/// Schedule::network_bytes where the busiest rank sends `wire_bytes`, the same to every other.
std::uint64_t all_to_all_network_bytes(const CostShape& shape, std::uint64_t wire_bytes);

}  // namespace winnow::comm
