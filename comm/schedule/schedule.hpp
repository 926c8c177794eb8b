// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#include "comm/schedule/exchange.hpp"
#include "comm/schedule/rounds.hpp"

namespace winnow::comm {

/// The inputs of a schedule's cost.
struct CostShape {
  int ranks = 1;
  std::uint64_t count = 0;             ///< positions of the part
  std::uint64_t k = 0;                 ///< kept elements
  compress::Codings codings = {};      ///< of its messages
  const Topology* topology = nullptr;  ///< of the ranks; null: each rank is a node of its own
  /// Chance that a rank keeps an element which another rank keeps. None: k / count, as of
  /// independent supports.
  std::optional<double> overlap = {};
  std::uint64_t sums_k = k;      ///< kept of the sums, where owners choose among them
  std::uint64_t parameters = 1;  ///< that the positions belong to, or their pieces
  bool one_outcome = false;      ///< as Course::one_outcome
};

/// The costs of a schedule, for the planner.
struct ScheduleCosts {
  /// Bytes that the busiest rank sends; for an evenly spread support if they depend on its shape.
  std::uint64_t (*wire_bytes)(const CostShape&);
  /// Messages that the busiest rank sends.
  std::uint64_t (*messages)(const CostShape&);
  /// Bytes that a rank's passes over memory read and write, by comm/schedule/pass_bytes.hpp.
  double (*pass_bytes)(const CostShape&);
  /// Bytes that the busiest node sends to other nodes; null if all ranks send every other rank
  /// equal shares of wire_bytes.
  std::uint64_t (*network_bytes)(const CostShape&) = nullptr;
  /// Bytes of the messages that it ends with, for a schedule that can be an inner one.
  std::uint64_t (*outcome_bytes)(const CostShape&) = nullptr;
  /// Bytes that a rank sends; null if all send as much as the busiest.
  std::uint64_t (*rank_bytes)(const CostShape&, int rank) = nullptr;
};

/// Runs one part.
using RunPart = Rounds (*)(Exchange&);
/// Runs all compressed parts of a bucket together.
using RunTogether = Rounds (*)(std::span<Exchange>);

/// A line of the table of schedules: who sends what to whom, in which order, so that every rank
/// ends with the same sum. To add one, write its file and put its row into the table in
/// schedule.cpp.
struct Schedule {
  std::string_view name;
  std::string_view summary;
  bool partitioned = false;  ///< positions have owners, who sum them
  /// Throws CommError or UsageError; the gradient is then in the residual or where Exchange::undo
  /// says, and the content of the elements does not matter.
  std::variant<RunPart, RunTogether> run;
  ScheduleCosts costs = {};  ///< those of two levels follow from the inner schedule's
  /// Writes a WholeSum times Scaling::factor to the elements, once all parts of the bucket are
  /// done; until then they keep the gradient, or the sum in progress. The Exec is the Exchange's,
  /// perhaps with a condition. Null: each part's sum is written when the part is done.
  void (*write)(Exchange&, const Exec&) = nullptr;
  const Schedule* inner = nullptr;  ///< for two levels: the schedule between nodes
  /// The kind of the messages it ends with: `gradient`, one from each rank; `sum`, one from each
  /// owner; `partial`, one or two whose sum it is (a gradient if there is one rank).
  compress::Header::Kind outcome = compress::Header::Kind::gradient;
  /// It selects other elements than the rest, so it is chosen only by name; and it does not take
  /// variable_k compressors. In two levels, the inner schedule says so.
  bool own_support = false;
  bool takes_turns = false;  ///< ranks act by PieceState::turn, which the host counts
  /// Fills in shapes of messages that only this schedule sends, for rank `rank` of `ranks`. May be
  /// null.
  void (*plan)(compress::Part&, const compress::Compressor&, int ranks, int rank) = nullptr;

  static constexpr int kNever = std::numeric_limits<int>::max();
  int waits_from = kNever;  ///< ranks of one level from which on hosts read what messages carry

  /// Whether the host waits for the device within a call of so many ranks though Course::status
  /// is set: to read what messages carry, if the support decides that. Else it is stream-ordered.
  bool waits(const compress::Compressor& compressor, int ranks) const {
    // In two levels a sum of all goes on to the ranks of a node, of however many nodes it is.
    const bool sum_travels = inner != nullptr && inner->outcome == compress::Header::Kind::partial;
    return (sum_travels || ranks >= rounds_between().waits_from) && !compressor.knows_support();
  }
  /// Runs a part, of a schedule that runs each by itself.
  Rounds run_part(Exchange& exchange) const { return std::get<RunPart>(run)(exchange); }
  std::uint64_t wire_bytes(const CostShape& shape) const;
  std::uint64_t network_bytes(const CostShape& shape) const;
  std::uint64_t messages(const CostShape& shape) const;
  double pass_bytes(const CostShape& shape) const;
  bool has_own_support() const { return rounds_between().own_support; }
  /// Whether owners code sums, which have both signs.
  bool codes_sums() const { return rounds_between().partitioned; }
  /// The schedule between nodes; in one level, this one.
  const Schedule& rounds_between() const { return inner != nullptr ? *inner : *this; }
};

/// compress::share_out among `ranks`, of whom this is `rank`, and the shapes of the messages that
/// the schedule, of one level, sends of the part.
void share_out(compress::Part& part, const Schedule& schedule,
               const compress::Compressor& compressor, int ranks, int rank);

/// Whether nothing else may be under way beside what a schedule runs on so many ranks: a host that
/// waits for a stream would also wait, without a deadline, for later messages on it.
inline bool goes_alone(const Schedule& schedule, const Exchange& exchange, int ranks) {
  const bool waits =
      kernels::reading_waits(exchange.exec) &&
      (exchange.course.status == nullptr || schedule.waits(exchange.compressor, ranks));
  return waits || exchange.course.one_by_one;
}

extern const Schedule kDense, kGather, kDoubling, kBalanced, kShared;
extern const Schedule kTwoLevelGather, kTwoLevelDoubling, kTwoLevelBalanced, kTwoLevelShared;
/// Schedules of reduce-scatters. The table leaves them out, since ranks end with different sums.
/// Before ranks write the sums of kScatter they must exchange whether all messages were finite,
/// since each rank has seen others.
extern const Schedule kScatter, kDenseScatter;

std::span<const Schedule* const> schedules();

/// Throws UsageError for an unknown name, naming the nearest.
const Schedule& find_schedule(std::string_view name);

/// Options::schedule as it is kept, of a text with blanks or capitals. Throws like find_schedule.
std::string schedule_word(std::string_view text);

/// The candidates for Options::schedule, in table order: for "auto" and "least_bytes" all that are
/// not chosen by name only; for "two_level" the two-level ones among these; otherwise the schedule
/// of that name. Throws like find_schedule.
std::vector<const Schedule*> find_schedules(std::string_view name);

/// The bytes of (P - 1) messages of k elements.
std::uint64_t bytes_to_each_other(const CostShape& shape);
/// Bytes that passes move where each rank encodes its gradient and adds P messages.
double encode_and_add_pass(const CostShape& shape);
/// P - 1, and 2 (P - 1).
std::uint64_t one_to_each_other(const CostShape& shape);
std::uint64_t two_to_each_other(const CostShape& shape);

/// 2 (P - 1) / P of the elements' bytes: what a dense ring sends, and the minimum of any dense
/// allreduce.
constexpr std::uint64_t ring_bytes(std::uint64_t count, std::size_t unit, int ranks) {
  return 2 * (count - count / static_cast<std::uint64_t>(ranks)) * unit;
}

/// The bytes that Winnow's own allreduce sends: ring_bytes, or P - 1 times everything where that is
/// little.
constexpr std::uint64_t dense_bytes(std::uint64_t count, std::size_t unit, int ranks) {
  return reduces_in_one_step(count, unit, ranks)
             ? static_cast<std::uint64_t>(ranks - 1) * count * unit
             : ring_bytes(count, unit, ranks);
}
/// Bytes that the busiest node sends to others if the busiest rank sends `wire_bytes`, equal shares
/// to every other rank.
std::uint64_t all_to_all_network_bytes(const CostShape& shape, std::uint64_t wire_bytes);

/// The largest of so many shares of a part, if supports are spread evenly.
CostShape share_of(CostShape shape, std::uint64_t shares);
/// The largest share of an owner.
inline CostShape share_of_owner(const CostShape& shape) {
  return share_of(shape, static_cast<std::uint64_t>(shape.ranks));
}
/// Bytes of the messages of all owners together.
std::uint64_t one_from_each_owner(const CostShape& shape);

}  // namespace winnow::comm
