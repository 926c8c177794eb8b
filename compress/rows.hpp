// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "kernels/arithmetic/partition.hpp"
#include "kernels/arithmetic/philox.hpp"

namespace winnow::compress {

// Sums of some rows of a table, in host memory, by owners who share its rows. Rows of one owner
// travel as two messages of docs/message_format.md, one behind the other: a support, whose
// positions are rows, and their values, where every position is carried.

/// The rows of a table, shared out among owners: row r is unit r of a Partition, so hot rows,
/// strides and ranges of rows are shared out alike. An owner numbers its rows locally, in order.
class RowPartition {
 public:
  /// At most 2^32 rows for each owner.
  RowPartition(std::uint32_t owners, std::uint64_t rows)
      : units_(owners, rows * kernels::Partition::kUnit), rows_(rows) {}

  std::uint32_t owners() const { return units_.owners(); }
  std::uint64_t rows() const { return rows_; }
  std::uint32_t owner(std::uint64_t row) const { return units_.owner_of_unit(row); }
  std::uint32_t local(std::uint64_t row) const {
    return static_cast<std::uint32_t>(row / units_.owners());
  }
  std::uint64_t row(std::uint32_t owner, std::uint32_t local) const {
    return units_.unit_of(owner, local);
  }
  /// Rows of an owner.
  std::uint64_t count(std::uint32_t owner) const {
    return units_.local_count(owner) / kernels::Partition::kUnit;
  }

 private:
  kernels::Partition units_;
  std::uint64_t rows_;
};

/// Rows of one owner: local numbers, ascending, and the values of each.
struct RowList {
  std::span<const std::uint32_t> local;
  std::span<const float> values;
};

/// Rows by owner: views of exec.workspace.
struct RowsByOwner {
  std::span<RowList> lists;
  std::span<float> values;  ///< of all lists, one after another
};

/// Widens rows as a caller gives them (in any order, perhaps repeated), adds those of one row to
/// each other in the order given, and shares them out. Every id is below rows.rows(); there are
/// below 2^32 of them.
RowsByOwner share_out_rows(const Exec& exec, std::span<const std::uint64_t> ids,
                           const ConstElements& values, std::uint64_t width,
                           const RowPartition& rows);

/// sum += row.
void add_row(std::span<float> sum, std::span<const float> row);

/// The rows of lists of one owner, each ((0 + lists[0]) + lists[1]) + ... of the lists that have
/// it: views of exec.workspace.
struct RowSums {
  std::span<const std::uint32_t> local;
  std::span<float> values;
};
RowSums add_rows(const Exec& exec, std::span<const RowList> lists, std::uint64_t width);

/// The values of rows on the wire: as elements of `type`, or, if `is_lossy`, coded as `value` says.
struct RowFormat {
  ElementType type = ElementType::float32;
  kernels::ValueFormat value;
  bool is_lossy = false;
};
/// The format in which elements travel as they are.
RowFormat exact_rows(ElementType type);

/// Messages of rows of one owner.
struct RowMessage {
  Header header;        ///< of the call, with the owner and flags
  Header::Kind kind;    ///< of the message of values
  std::uint64_t count;  ///< rows that the owner has
  std::uint64_t width;  ///< values of a row
  RowFormat format;

  /// The bytes of both messages of k rows.
  std::size_t bytes(std::uint64_t k) const {
    return shape(k).support.bytes() + shape(k).values.bytes();
  }
  struct Shapes {
    Shape support, values;
  };
  Shapes shape(std::uint64_t k) const;
};

/// Writes both messages to `out`, of their size. If the format is lossy, the values must be finite,
/// and become what the coding misses of them.
void encode_rows(const Exec& exec, const RowMessage& message, std::span<const std::uint32_t> local,
                 std::span<float> values, const kernels::RandomKey& random,
                 std::span<std::byte> out);

/// Rows that came: views of their messages and of exec.workspace.
struct ReceivedRows {
  RowList list;
  std::span<const std::byte> value_part;
  std::uint16_t flags = 0;
};
/// Checks and reads both messages of k rows. Throws as decode does.
ReceivedRows decode_rows(const Exec& exec, const RowMessage& message, std::uint64_t k, int sender,
                         std::span<const std::byte> bytes);

/// Visits the entries of `lists` lists in ascending order of key(list, i), those of one key by
/// list: visit(list, i). Each list has size(list) entries, whose keys ascend.
template <class Size, class Key, class Visit>
void merge_lists(const Exec& exec, std::size_t lists, const Size& size, const Key& key,
                 const Visit& visit) {
  struct Next {
    std::uint64_t key;
    std::size_t list, entry;
  };
  const Workspace::Scope scope(*exec.workspace);
  const auto all = exec.workspace->take<Next>(lists);
  std::size_t count = 0;
  for (std::size_t list = 0; list < lists; ++list) {
    if (size(list) > 0) all[count++] = {key(list, 0), list, 0};
  }
  const auto later = [](const Next& a, const Next& b) {
    return a.key != b.key ? a.key > b.key : a.list > b.list;
  };
  std::make_heap(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), later);
  while (count > 0) {
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(count);
    std::pop_heap(all.begin(), end, later);
    Next& first = all[count - 1];
    visit(first.list, first.entry);
    if (++first.entry == size(first.list)) {
      --count;
      continue;
    }
    first.key = key(first.list, first.entry);
    std::push_heap(all.begin(), end, later);
  }
}

}  // namespace winnow::compress
