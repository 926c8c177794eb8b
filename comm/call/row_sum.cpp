// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/row_sum.hpp"

#include <algorithm>
#include <limits>

#include "comm/plan/hash.hpp"
#include "comm/transport/memory.hpp"
#include "kernels/arithmetic/element.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {
namespace {

constexpr std::uint64_t kMostElements = std::numeric_limits<std::uint64_t>::max() / 64;

std::string dimensions_of(const RowTable& table) {
  return std::to_string(table.rows) + " x " + std::to_string(table.width);
}

/// Why there can be no sum of rows of this table on any rank, or empty.
std::string refuse_table(const RowTable& table, ElementType type, ReduceOp op, int ranks) {
  constexpr std::uint64_t kMostOfAnOwner = std::numeric_limits<std::uint32_t>::max();
  if (op != ReduceOp::sum && op != ReduceOp::average) {
    return "all_reduce_rows takes sums and averages";
  }
  if (!kernels::is_gradient(type)) {
    return "all_reduce_rows takes elements of float32, bf16 and fp16, not " +
           std::string(name_of(type));
  }
  if (table.rows > kMostOfAnOwner * static_cast<std::uint64_t>(ranks)) {
    return "table_rows is " + std::to_string(table.rows) +
           ": the count of a table's rows is at most 2^32 - 1 for each rank";
  }
  if (table.width > 0 && table.rows > kMostElements / table.width) {
    return "a table of " + std::to_string(table.rows) + " rows of width " +
           std::to_string(table.width) + " has a count of elements that no memory can have";
  }
  return {};
}

/// Why these are no rows of the table, or empty.
std::string refuse_rows(const RowTable& table, std::span<const std::uint64_t> ids,
                        const ConstElements& rows) {
  if (ids.size() > std::numeric_limits<std::uint32_t>::max()) {
    return "the count of rows is " + std::to_string(ids.size()) + ": must be below 2^32";
  }
  const bool wraps = table.width > 0 && ids.size() > kMostElements / table.width;
  if (wraps || rows.size() != ids.size() * table.width) {
    return std::to_string(ids.size()) + " rows of a table of " + dimensions_of(table) +
           " do not have " + std::to_string(rows.size()) + " elements";
  }
  if (const auto wrong = memory_error(ids.data(), ids.size(), sizeof(std::uint64_t));
      !wrong.empty()) {
    return "the array of rows" + wrong;
  }
  if (const auto wrong = memory_error(rows.data(), rows.size(), bytes_of(rows.type()));
      !wrong.empty()) {
    return "the array of values" + wrong;
  }
  const auto outside =
      std::ranges::find_if(ids, [&](std::uint64_t id) { return id >= table.rows; });
  if (outside == ids.end()) return {};
  return "row " + std::to_string(*outside) + " is outside of a table of " + dimensions_of(table);
}

std::string_view coding_name(RowCoding coding) {
  return coding == RowCoding::bf16 ? "bf16" : "int8";
}

/// How rows of this type travel.
compress::RowFormat format_of(ElementType type, const Options& options) {
  compress::RowFormat format = compress::exact_rows(type);
  if (options.rows == RowCoding::exact || !options.enable) return format;
  const auto codings = kernels::value_codings();
  const auto coding =
      std::ranges::find(codings, coding_name(options.rows), &kernels::ValueCoding::name);
  format.value = {.coding = &*coding, .block = coding->default_block};
  format.is_lossy = true;
  return format;
}

}  // namespace

RowSum::RowSum(const RowTable& table, std::span<const std::uint64_t> ids, const ConstElements& rows,
               ReduceOp op, const World& world, RowMemory& sums)
    : Request({&segment_, 1}, op),
      table_(table),
      ids_(ids),
      rows_(rows),
      name_("rows of a table of " + dimensions_of(table)),
      segment_{.elements = {nullptr, 0, rows.type()}, .id = table.id, .name = name_},
      wrong_(refuse_table(table, rows.type(), op, world.ranks)),
      sums_(sums) {}

std::uint64_t RowSum::id(std::uint64_t of_segments) const {
  const char* const kind = wrong_.empty() ? "rows" : "wrong rows";
  return Hash().add(of_segments).add(kind).add(table_.rows).add(table_.width).value();
}

std::string RowSum::lines(const Options& options) const {
  return "all_reduce_rows: " + Request::lines(options);
}

std::string RowSum::refusal(const Setup& setup, const ParameterStates& states) const {
  if (!wrong_.empty()) return wrong_;
  if (setup.exec().place == Place::cuda) {
    return "all_reduce_rows takes rows in host memory: give them to an AllReducer of host memory";
  }
  if (setup.options.precondition != "none") {
    return "all_reduce_rows sums rows as they are, and precondition=" + setup.options.precondition +
           " would change them: give them to another AllReducer";
  }
  const auto known = states.find(table_.id);
  if (setup.options.rows != RowCoding::exact && known != states.end() &&
      known->second.count != elements()) {
    return compress::label_of(table_.id, known->second.name) + " had " +
           std::to_string(known->second.count) + " elements and is now a table of " +
           dimensions_of(table_);
  }
  return refuse_rows(table_, ids_, rows_);
}

std::string RowSum::capture_refusal() const {
  return "all_reduce_rows cannot be captured into a CUDA graph: the host waits within it";
}

Bucket RowSum::plan(std::uint64_t id, const Options& options, const World& world,
                    const compress::Compressor&, ParameterStates& states) const {
  Bucket bucket{.id = id, .plan = id, .count = elements()};
  bucket.words.schedule = "rows";
  bucket.words.reason = "owners of rows sum what ranks have of them";
  const compress::RowFormat format = format_of(rows_.type(), options);
  bucket.words.coding = format.value.coding->name;
  bucket.unit = bytes_of(rows_.type());
  bucket.costs.dense_wire_bytes = ring_bytes(bucket.count, bucket.unit, world.ranks);
  if (!format.is_lossy || bucket.count == 0) return bucket;
  compress::ParameterState& parameter = states[table_.id];
  parameter.count = bucket.count;
  if (parameter.piece_length == 0) {
    parameter.piece_length = std::min(bucket.count, std::uint64_t{Options::kMaxPart});
    parameter.pieces.resize((bucket.count - 1) / parameter.piece_length + 1);
  }
  parameter.residual_memory = residual_memory(options, world.place);
  bucket.table = &parameter;
  return bucket;
}

bool RowSum::reduce(const CallParts& call) const {
  const Setup& setup = call.setup;
  const World& world = setup.world;
  RowExchange exchange{
      .wire = {.world = setup.transport(), .deadline = setup.deadline(), .stats = call.stats},
      .rails = setup.rails.get(),
      .exec = call.exec(),
      .header = call.header,
      .random = {.seed = setup.options.seed,
                 .call = call.header.call,
                 .rank = static_cast<std::uint32_t>(world.rank)},
      .rows = {static_cast<std::uint32_t>(world.ranks), table_.rows},
      .width = table_.width,
      .format = format_of(rows_.type(), setup.options),
      .factor = 1 / averaged(world.ranks),
      .decay = setup.options.decay};
  if (call.bucket.table != nullptr) {
    exchange.residual = call.bucket.table->residual.span();
    for (compress::PieceState& piece : call.bucket.table->pieces) piece.mark_dirty();
    ++call.bucket.table->calls;
  }
  const std::string refusal = refuse_rows(table_, ids_, rows_);
  const bool finite = sum_rows(exchange, {ids_, rows_, refusal}, sums_);
  result_.elements = {sums_.values.data(), sums_.rows * table_.width, rows_.type()};
  if (!finite) call.stats.poisoned = 1;
  return true;
}

}  // namespace winnow::comm
