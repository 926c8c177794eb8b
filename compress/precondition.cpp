// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/precondition.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <winnow/error.hpp>

#include "kernels/elementwise.hpp"

namespace winnow::compress {

namespace {

constexpr std::string_view kName = "second_moment";
constexpr double kEpsilon = 1e-8;

/// A number above 0, or 0 if the text is none.
double positive(std::string_view text) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc() && end == last && std::isfinite(number) && number > 0 ? number : 0;
}

}  // namespace

Preconditioner::Preconditioner(std::string_view text) {
  if (text == "none") return;
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  const bool named = text.substr(0, first) == kName && first != std::string_view::npos;
  if (named) beta_ = positive(text.substr(first + 1, second - first - 1));
  epsilon_ = second == std::string_view::npos ? kEpsilon : positive(text.substr(second + 1));
  WINNOW_EXPECTS(named && beta_ > 0 && beta_ < 1 && epsilon_ > 0,
                 "option precondition takes none or second_moment:B2[:EPSILON], B2 between 0 and 1 "
                 "and EPSILON above 0, such as second_moment:0.999, not '" +
                     std::string(text) + "'");
}

std::string Preconditioner::name() const {
  if (!has_moments()) return "none";
  std::string text(kName);
  for (const double number : {beta_, epsilon_}) {
    std::array<char, 32> digits;
    text += ':';
    text.append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
  }
  return text;
}

void Preconditioner::make_state(const Exec& exec, ParameterState& parameter) const {
  if (!has_moments() || !parameter.second.empty()) return;
  parameter.second = {exec, parameter.count, parameter.residual_memory};
}

void Preconditioner::begin(ParameterState& parameter) const {
  if (has_moments()) ++parameter.moments;
}

void Preconditioner::apply(const Exec& exec, const Piece& piece, float rate, bool again) const {
  ParameterState& parameter = *piece.parameter;
  if (!has_moments()) {
    if (rate != 1) kernels::scale(exec, piece.elements, rate);
    return;
  }
  const double known = 1 - std::pow(beta_, static_cast<double>(parameter.moments));
  kernels::precondition(exec, piece.elements,
                        parameter.second.span().subspan(piece.offset, piece.elements.size()),
                        {.decay = again ? 1 : static_cast<float>(beta_),
                         .weight = again ? 0 : static_cast<float>(1 - beta_),
                         .correction = static_cast<float>(1 / known),
                         .floor = static_cast<float>(epsilon_),
                         .rate = rate});
}

}  // namespace winnow::compress
