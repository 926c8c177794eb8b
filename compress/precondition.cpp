// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/precondition.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/elementwise.hpp"
#include "kernels/memory_ops.hpp"
#include "topology/words.hpp"

namespace winnow::compress {

namespace {

constexpr std::string_view kSecondMoment = "second_moment", kMomentum = "momentum",
                           kMasked = "masked";

/// A number above 0 and below `limit`, or 0 if the word is none.
double number(std::string_view word, double limit) {
  double value = 0;
  return read_number(word, value) && value > 0 && value < limit ? value : 0;
}

void append(std::string& text, double number) {
  std::array<char, 32> digits;
  text += ':';
  text.append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
}

}  // namespace

Preconditioner::Preconditioner(std::string_view given) {
  const std::string text = lower_case(without_blanks(given, ":"));
  if (text == "none") return;
  const std::vector<std::string_view> words = split(text, ":");
  if (words[0] == kSecondMoment) kind_ = Kind::second_moment;
  if (words[0] == kMomentum) kind_ = Kind::momentum;
  bool good = has_moments() && (words.size() == 2 || words.size() == 3);
  if (good) decay_ = number(words[1], 1);
  if (good && words.size() == 3) {
    if (kind_ == Kind::second_moment) epsilon_ = number(words[2], 1e30);
    masked_ = kind_ == Kind::momentum && words[2] == kMasked;
    good = kind_ == Kind::second_moment || masked_;
  }
  WINNOW_EXPECTS(good && decay_ > 0 && epsilon_ > 0,
                 "option precondition takes none, second_moment:B2[:EPSILON] or "
                 "momentum:M[:masked], B2 and M between 0 and 1 and EPSILON above 0, such as "
                 "second_moment:0.999, not '" +
                     std::string(given) + "'");
}

std::string Preconditioner::name() const {
  if (!has_moments()) return "none";
  const bool second = kind_ == Kind::second_moment;
  std::string text(second ? kSecondMoment : kMomentum);
  append(text, decay_);
  if (second) append(text, epsilon_);
  if (masked_) (text += ':') += kMasked;
  return text;
}

void Preconditioner::make_state(const Exec& exec, ParameterState& parameter) const {
  if (!has_moments() || !parameter.moment.empty()) return;
  parameter.moment = {exec, parameter.count, parameter.residual_memory};
  parameter.counted = 0;
}

kernels::Precondition Preconditioner::change(const Piece& piece, float given,
                                             bool has_residual) const {
  // An infinite one would make sums infinite, and some NaN, as the schedule has it.
  const float rate = std::isfinite(given) ? given : std::numeric_limits<float>::quiet_NaN();
  if (!has_moments()) return {.kind = Kind::rate, .rate = rate};
  ParameterState& parameter = *piece.parameter;
  kernels::Precondition by{.kind = kind_, .moment = parameter.moment.span().data() + piece.offset};
  if (kind_ == Kind::second_moment) {
    by.divide = kernels::SecondMomentStep::of(decay_, epsilon_, parameter.counted, rate);
  } else {
    by.masked = masked_ && has_residual;
    by.add = {.momentum = static_cast<float>(decay_), .rate = rate};
  }
  return by;
}

void Preconditioner::repeat(const Exec& exec, const Piece& piece, float rate) const {
  kernels::Precondition by = of(piece, rate, false);
  // The moment has the gradient already.
  by.divide.decay = by.add.momentum = 1;
  by.divide.weight = 0;
  if (kind_ == Kind::momentum) kernels::fill(exec, piece.elements, 0);
  kernels::precondition(exec, piece.elements.floats(), {}, by);
}

}  // namespace winnow::compress
