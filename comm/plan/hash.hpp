// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace winnow::comm {

/// FNV-1a over 64-bit words or text: identifies options and buckets in headers. Not cryptographic.
class Hash {
 public:
  Hash& add(std::uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) add_byte((word >> shift) & 0xff);
    return *this;
  }
  Hash& add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    return add(text.size());
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(std::uint64_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace winnow::comm
