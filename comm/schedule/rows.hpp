// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "comm/schedule/exchange.hpp"
#include "comm/schedule/shards.hpp"
#include "compress/rows.hpp"
#include "kernels/arithmetic/philox.hpp"

namespace winnow::comm {

/// A sum of rows of a table over ranks, as a call makes it.
struct RowExchange {
  Wire wire;
  const Rails* rails;  ///< of Wire::world
  const Exec& exec;
  compress::Header header;    ///< of this call
  kernels::RandomKey random;  ///< of this call and rank
  compress::RowPartition rows;
  std::uint64_t width;             ///< elements of a row
  compress::RowFormat format;      ///< of messages
  float factor = 1;                ///< of sums
  float decay = 1;                 ///< of the residual
  std::span<float> residual = {};  ///< of the table, where the format is lossy

  std::span<float> residual_of(std::uint64_t row) const {
    return residual.subspan(row * width, width);
  }
};

/// A rank's rows as its caller gives them, or why it gives none.
struct RowInput {
  std::span<const std::uint64_t> ids;
  ConstElements values;
  std::string_view refusal = {};
};

/// The memory of a result, which keeps its size from call to call.
struct RowMemory {
  std::vector<std::uint64_t> ids;
  std::vector<std::byte> values;
  std::size_t rows = 0;  ///< in use
};

/// Ranks send each owner their rows of its positions; owners add them in rank order, row r being
/// ((0 + rows[0]) + rows[1]) + ... of the ranks that have it, and send the sums to all. (Zen, Wang
/// et al., 2023, has this exchange, which is balanced whatever rows are hot.) Each stage exchanges
/// 8 bytes for how many rows follow, so scratch is as large as the messages.
///
/// With a lossy format a rank sends acc = row + decay * residual, and keeps what the coding misses;
/// an owner adds its own acc whole, for each row that anybody sends, and keeps what the coding of
/// the sum misses. If anything is not finite, all sums are NaN, and residual = acc where that is
/// finite, as after a failure. Returns whether they are finite; of exact formats it does not know.
/// Throws Refused if a rank gives none.
bool sum_rows(RowExchange& exchange, const RowInput& input, RowMemory& sums);

}  // namespace winnow::comm
