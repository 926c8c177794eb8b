// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/error.hpp>

#include "compress/message.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/answers.hpp"

namespace winnow::tests {

inline constexpr int kSender = 5;

/// Bytes at an 8-byte, and no better, alignment.
class Bytes {
 public:
  explicit Bytes(std::size_t size) : words_(size / 8 + 3), size_(size) {}
  explicit Bytes(std::span<const std::byte> from) : Bytes(from.size()) {
    std::ranges::copy(from, span().begin());
  }
  std::span<std::byte> span() {
    const bool even = reinterpret_cast<std::uintptr_t>(words_.data()) % 16 == 0;
    return std::as_writable_bytes(std::span(words_)).subspan(even ? 8 : 0, size_);
  }

 private:
  std::vector<std::uint64_t> words_;
  std::size_t size_;
};

inline compress::Header gradient_header(std::uint64_t count, std::uint64_t k) {
  compress::Header header;
  header.digest = 0x0123456789abcdef;
  header.bucket = 0xfedcba9876543210;
  header.call = 1000000007;
  header.count = count;
  header.k = k;
  header.part = 2;
  return header;
}

inline Bytes finished_message(const compress::Header& header, std::span<const std::uint32_t> index,
                              std::span<const float> value, const Exec& exec = {},
                              const compress::Codings& codings = {}) {
  const compress::Shape shape = compress::shape_of(header.count, header.k, codings);
  Bytes message(shape.bytes());
  std::ranges::fill(message.span(), std::byte{0xa5});  // what was there before must not show
  const compress::MessageLayout layout = compress::lay_out(shape, message.span());
  std::vector<float> values(value.begin(), value.end());
  kernels::quantize(exec, codings.value, {}, values, layout.value_part);
  compress::finish_message(exec, header, shape, index, message.span(), codings);
  return message;
}

/// All value codings but the first, float32.
inline std::span<const kernels::ValueCoding> lossy_codings() {
  return kernels::value_codings().subspan(1);
}

/// The coding of that name, with `block` where it has scales.
inline compress::Codings codings_of(std::string_view name,
                                    const compress::IndexCoding* index = nullptr,
                                    std::uint32_t block = 64) {
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    if (coding.name != name) continue;
    return {.value = {.coding = &coding, .block = coding.default_block == 0 ? 0u : block},
            .index = index};
  }
  ADD_FAILURE() << "no value coding " << name;
  return {};
}

/// A message that tests/golden/make_golden.py wrote; tests run in the folder tests.
inline Bytes golden_message(const std::string& name) {
  std::ifstream file("golden/" + name + ".bin", std::ios::binary);
  EXPECT_TRUE(file.good()) << "no golden/" << name << ".bin";
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return Bytes(std::as_bytes(std::span(text)));
}

inline std::vector<float> ramp(std::uint64_t k) {
  std::vector<float> value;
  for (std::uint64_t i = 0; i < k; ++i) {
    value.push_back((static_cast<float>(i) + 1.5f) * (i % 2 == 0 ? 1.0f : -1.0f));
  }
  return value;
}

/// k of count positions, spread; the last is the last there is.
inline std::vector<std::uint32_t> spread(std::uint64_t count, std::uint64_t k) {
  std::vector<std::uint32_t> index;
  for (std::uint64_t i = 1; i <= k; ++i) {
    index.push_back(static_cast<std::uint32_t>(count * i / k - 1));
  }
  return index;
}

enum class Outcome { opened, usage_error, comm_error };
struct Answer {
  Outcome outcome;
  std::string text;
};

inline Answer try_open(std::span<const std::byte> message, const compress::Expected& expected,
                       const compress::Codings& codings = {}) {
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  try {
    (void)compress::decode(Exec{.workspace = &workspace}, message, expected, kSender, codings);
  } catch (const UsageError& error) {
    return {Outcome::usage_error, error.what()};
  } catch (const CommError& error) {
    return {Outcome::comm_error, error.what()};
  }
  return {Outcome::opened, ""};
}

inline void expect_refused(std::span<const std::byte> message, const compress::Expected& expected,
                           std::string_view because = "", const compress::Codings& codings = {}) {
  const Answer answer = try_open(message, expected, codings);
  EXPECT_EQ(answer.outcome, Outcome::comm_error) << answer.text;
  EXPECT_NE(answer.text.find("message from rank 5: "), std::string::npos) << answer.text;
  EXPECT_NE(answer.text.find(because), std::string::npos) << answer.text;
}

/// Gives a forged message the checksum that belongs to it.
inline void correct_checksum(std::span<std::byte> message) {
  const std::uint64_t zero = 0;
  std::memcpy(message.data() + offsetof(compress::Header, checksum), &zero, 8);
  const std::uint64_t sum = checksum_of(Exec{.place = lab::kReference}, message);
  std::memcpy(message.data() + offsetof(compress::Header, checksum), &sum, 8);
}

}  // namespace winnow::tests
