// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/reach.hpp"

// The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Runs the files named on the command line, and every truncation and flipped bit of them, through
/// the fuzz target that it is linked with. Together they must reach every kind and coding.
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", argv[i]);
      return 1;
    }
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto run = [&](std::size_t size) {
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), size);
    };
    for (std::size_t size = 0; size <= bytes.size(); ++size) run(size);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
      run(bytes.size());
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    }
  }
  if (winnow::fuzz::reach.complete()) return 0;
  std::fputs("some kind or coding was never opened\n", stderr);
  return 1;
}
