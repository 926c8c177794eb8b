// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <winnow/exec.hpp>

#include "compress/part.hpp"

namespace winnow::compress {

/// The transformation of a rank's gradient before error feedback: Options::precondition and
/// Segment::rate.
class Preconditioner {
 public:
  /// Reads "none", "second_moment:B2[:EPSILON]" or "momentum:M[:masked]". Throws UsageError.
  explicit Preconditioner(std::string_view given);
  /// In canonical form, e.g. "second_moment:0.999:1e-08".
  std::string name() const;
  /// Whether parameters have moments.
  bool has_moments() const { return kind_ != Kind::none; }
  /// Whether gradients that come with this rate stay as they are.
  bool leaves(float rate) const { return !has_moments() && rate == 1; }

  /// Allocates a parameter's moment, if it takes one and has none.
  void make_state(const Exec& exec, ParameterState& parameter) const;
  /// Begins a call, whose gradient is one more that the parameter's moment counts.
  void begin(ParameterState& parameter) const {
    if (has_moments()) ++parameter.counted;
  }
  /// The transformation of the elements of a piece. Where `has_residual` says that what is not sent
  /// of the piece waits on this rank, momentum may be masked.
  kernels::Precondition of(const Piece& piece, float given, bool has_residual) const {
    return leaves(given) ? kernels::Precondition() : change(piece, given, has_residual);
  }
  /// Makes what `of` did, once more in the same call, of elements that were read again.
  void repeat(const Exec& exec, const Piece& piece, float rate) const;

 private:
  using Kind = kernels::Precondition::Kind;

  kernels::Precondition change(const Piece& piece, float given, bool has_residual) const;

  Kind kind_ = Kind::none;
  double decay_ = 0;  ///< B2 or M
  double epsilon_ = 1e-8;
  bool masked_ = false;
};

}  // namespace winnow::compress
