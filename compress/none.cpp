// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/none.hpp"

#include <winnow/error.hpp>

#include "compress/selection.hpp"

namespace winnow::compress {
namespace {

class None final : public Compressor {
 public:
  std::string name() const override { return "none"; }
  bool lossless() const override { return true; }
  std::uint64_t kept(std::uint64_t count) const override { return count; }

  // Top-k of everything: residuals of an earlier compressor travel at the first call, and an
  // element that is not finite stays out of the residual, by the rules of one kernel.
  void encode(const Exec& exec, float decay, const Part& part, const Header& header,
              std::span<std::byte> out) const override {
    select_and_seal(exec, decay, part, header, out);
  }
};

}  // namespace

std::unique_ptr<Compressor> make_none(std::string_view argument) {
  if (!argument.empty()) {
    fail_usage("none takes no argument, not '" + std::string(argument) + "'");
  }
  return std::make_unique<None>();
}

}  // namespace winnow::compress
