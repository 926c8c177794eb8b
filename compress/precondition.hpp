// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <winnow/exec.hpp>

#include "compress/part.hpp"

namespace winnow::compress {

/// What a rank makes of its gradient before error feedback: Options::precondition and
/// Segment::rate.
class Preconditioner {
 public:
  /// Reads "none" or "second_moment:B2[:EPSILON]". Throws UsageError.
  explicit Preconditioner(std::string_view text);
  /// In canonical form, e.g. "second_moment:0.999:1e-08".
  std::string name() const;
  /// Whether parameters have second moments.
  bool has_moments() const { return beta_ > 0; }

  /// Allocates a parameter's second moment, if it takes one and has none.
  void make_state(const Exec& exec, ParameterState& parameter) const;
  /// Begins a call: its gradient is one more that the parameter's moment counts.
  void begin(ParameterState& parameter) const;
  /// Replaces the elements of a piece; if `again`, those of the call that was begun last, once
  /// more.
  void apply(const Exec& exec, const Piece& piece, float rate, bool again) const;

 private:
  double beta_ = 0, epsilon_ = 0;
};

}  // namespace winnow::compress
