// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "compress/index_coding.hpp"
#include "compress/message.hpp"

namespace winnow::fuzz {

/// Counts opened messages by kind and coding, so that a target that refuses all of one kind shows.
/// Written to stderr at the end of the program.
class Reach {
 public:
  Reach() = default;
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;
  ~Reach() { print(); }

  void count(const compress::Header& header) {
    ++kinds_.at(static_cast<std::size_t>(header.kind));
    ++index_.at(header.index_coding);
    ++value_.at(header.value_coding % 16);
    everything_coded_ += header.k == header.count && header.value_coding > 1;
  }

  /// Whether every kind except agreement and every coding was opened, and a message with k = count
  /// and coded values.
  bool complete() const {
    bool all = kinds_[1] > 0 && kinds_[3] > 0 && kinds_[4] > 0 && kinds_[5] > 0 && kinds_[6] > 0 &&
               everything_coded_ > 0;
    for (const auto* coding : compress::index_codings()) all &= index_.at(coding->id) > 0;
    for (const auto& coding : kernels::value_codings()) all &= value_.at(coding.id) > 0;
    return all;
  }

 private:
  void print() const {
    constexpr std::string_view kKinds[] = {"",    "gradient", "agreement", "contribution",
                                           "sum", "partial",  "support"};
    std::fputs("opened:", stderr);
    for (const std::size_t kind : {1u, 3u, 4u, 5u, 6u}) print(kKinds[kind], kinds_[kind]);
    for (const auto* coding : compress::index_codings()) print(coding->name, index_.at(coding->id));
    for (const auto& coding : kernels::value_codings()) print(coding.name, value_.at(coding.id));
    print("everything,coded", everything_coded_);
    std::fputc('\n', stderr);
  }
  static void print(std::string_view name, std::uint64_t messages) {
    std::fprintf(stderr, " %.*s %llu", static_cast<int>(name.size()), name.data(),
                 static_cast<unsigned long long>(messages));
  }

  std::array<std::uint64_t, 7> kinds_{};
  std::array<std::uint64_t, 16> index_{}, value_{};  // by id
  std::uint64_t everything_coded_ = 0;
};

inline Reach reach;

}  // namespace winnow::fuzz
