// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>
#include <winnow/error.hpp>

#include "compress/message.hpp"
#include "kernels/checksum.hpp"

// open() on bytes that anyone may have written. libFuzzer drives it where the compiler is clang:
//
//   export CXX=clang++-16 CXXFLAGS=-fsanitize=fuzzer-no-link
//   meson setup build-fuzz -Db_sanitize=address,undefined -Db_lundef=false -Dopenmp=disabled
//   ninja -C build-fuzz tests/message_fuzz
//   build-fuzz/tests/message_fuzz -max_total_time=60 tests/golden
//
// Elsewhere message_replay runs files through it, as a test.

namespace {

using namespace winnow;
using compress::Header;

/// What open() accepts is what seal() writes, and throws nothing but what it says it does.
void check_open(std::span<const std::byte> message, const Header& expected) {
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  const Exec exec{.workspace = &workspace};
  try {
    const compress::MessageView view = compress::open(exec, message, expected, 0);
    std::vector<std::uint64_t> words(message.size() / 8);
    const auto again = std::as_writable_bytes(std::span(words));
    const auto layout = compress::lay_out(view.header.count, view.header.k, again);
    // A message without values has no memory to copy from.
    if (!view.value.empty()) {
      std::memcpy(layout.value.data(), view.value.data(), view.value.size_bytes());
    }
    compress::seal(exec, view.header, view.index, again);
    if (std::memcmp(again.data(), message.data(), message.size()) != 0) {
      std::fputs("open() accepted a message that seal() does not write\n", stderr);
      std::abort();
    }
  } catch (const UsageError&) {
  } catch (const CommError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Words, for the alignment that open() asks for.
  std::vector<std::uint64_t> words(size / 8 + 1);
  if (size > 0) std::memcpy(words.data(), data, size);
  const auto message = std::as_writable_bytes(std::span(words)).first(size);
  Header claimed;
  if (size >= sizeof claimed) std::memcpy(&claimed, data, sizeof claimed);
  Header other = claimed;
  other.count += 1;
  Header elsewhere = claimed;
  elsewhere.digest ^= 1;
  const auto check_all = [&] {
    for (const Header& expected : {claimed, other, elsewhere, Header{}}) {
      check_open(message, expected);
    }
  };
  check_all();
  if (size < sizeof claimed || size % 4 != 0) return 0;
  // Once more behind the checksum, which no random change would pass.
  const std::uint64_t zero = 0;
  std::memcpy(message.data() + offsetof(Header, checksum), &zero, 8);
  const std::uint64_t sum = kernels::checksum(Exec{}, message);
  std::memcpy(message.data() + offsetof(Header, checksum), &sum, 8);
  check_all();
  return 0;
}
