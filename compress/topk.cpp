// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/topk.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <winnow/error.hpp>

#include "compress/selection.hpp"

namespace winnow::compress {
namespace {

class TopK final : public Compressor {
 public:
  explicit TopK(double density) : density_(density) {
    std::array<char, 32> text;
    name_.append(text.data(), std::to_chars(text.begin(), text.end(), density).ptr);
  }

  std::string name() const override { return name_; }
  bool lossless() const override { return density_ == 1; }

  std::uint64_t kept(std::uint64_t count) const override {
    if (count == 0) return 0;
    // A density written in decimal is rarely a double: 0.07 * 100 is a little over 7, and must
    // keep 7. One part in 10^12 is far below one element and far above the rounding.
    const double exact = density_ * static_cast<double>(count) * (1 - 1e-12);
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::ceil(exact)), 1, count);
  }

  void encode(const Exec& exec, float decay, const Part& part, const Header& header,
              std::span<std::byte> out) const override {
    select_and_seal(exec, decay, part, header, out);
  }

 private:
  double density_;
  std::string name_ = "topk:";
};

}  // namespace

std::unique_ptr<Compressor> make_topk(std::string_view argument) {
  double density = 0;
  const auto [end, error] =
      std::from_chars(argument.data(), argument.data() + argument.size(), density);
  if (error != std::errc() || end != argument.data() + argument.size() || !(density > 0) ||
      density > 1) {
    fail_usage("topk takes a density above 0 and at most 1, such as topk:0.01, not '" +
               std::string(argument) + "'");
  }
  return std::make_unique<TopK>(density);
}

}  // namespace winnow::compress
