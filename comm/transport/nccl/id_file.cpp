// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/nccl/id_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/socket.hpp"

namespace winnow::comm {
namespace {

constexpr std::uint64_t kMagic = 0x656c6966'574e4e57;  // "WNNWfile", little-endian
constexpr std::uint32_t kId = 1, kRefusal = 2;
constexpr std::uint32_t kMostBytes = 4096;
constexpr std::chrono::milliseconds kPause{5};  // between two polls

/// The file's first bytes; the id or the reason follows.
struct Prefix {
  std::uint64_t magic = kMagic;
  std::uint64_t job = 0;
  std::uint32_t kind = kId;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(Prefix) == 24);

bool write_all(const Socket& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

struct IdFile::Content {
  Prefix prefix;
  std::vector<std::byte> bytes;
};

IdFile::IdFile(std::string path, std::uint64_t job) : path_(std::move(path)), job_(job) {
  WINNOW_EXPECTS(!path_.empty(), "the ranks of a job need the path of a file to meet at");
}

/// Empty if there is no such file: `problem` then says what is there.
std::optional<IdFile::Content> IdFile::load(std::string& problem) const {
  std::ifstream file(path_, std::ios::binary);
  if (!file) {
    problem = path_ + ": " + std::strerror(errno);
    return {};
  }
  std::vector<char> all(sizeof(Prefix) + kMostBytes + 1);  // one more detects a longer file
  file.read(all.data(), std::ssize(all));
  all.resize(static_cast<std::size_t>(file.gcount()));
  Content content;
  if (all.size() >= sizeof(Prefix)) std::memcpy(&content.prefix, all.data(), sizeof(Prefix));
  if (all.size() < sizeof(Prefix) || content.prefix.magic != kMagic ||
      content.prefix.bytes != all.size() - sizeof(Prefix)) {
    problem = path_ + " is no file that ranks meet at";
    return {};
  }
  std::ranges::copy(std::as_bytes(std::span(all).subspan(sizeof(Prefix))),
                    std::back_inserter(content.bytes));
  return content;
}

void IdFile::store(std::uint32_t kind, std::span<const std::byte> bytes) const {
  std::string name = path_ + ".XXXXXX";
  const auto fail = [&](const char* what) {
    const std::string why = std::strerror(errno);
    ::unlink(name.c_str());
    fail_usage("the ranks of a job cannot meet at " + path_ + ": " + what + ": " + why);
  };
  const Prefix prefix{.job = job_, .kind = kind, .bytes = static_cast<std::uint32_t>(bytes.size())};
  const Socket file(::mkstemp(name.data()));
  if (!file.is_open()) fail("mkstemp");
  if (!write_all(file, std::as_bytes(std::span(&prefix, 1))) || !write_all(file, bytes)) {
    fail("write");
  }
  // On a shared file system the bytes must be there before the name.
  if (::fsync(file.get()) != 0 && errno != EINVAL) fail("fsync");
  if (std::rename(name.c_str(), path_.c_str()) != 0) fail("rename");
}

void IdFile::write(std::span<const std::byte> id) const {
  WINNOW_EXPECTS(id.size() <= kMostBytes, "an id of " + std::to_string(id.size()) +
                                              " bytes: at most " + std::to_string(kMostBytes));
  std::string problem;
  WINNOW_EXPECTS(load(problem) || ::access(path_.c_str(), F_OK) != 0,
                 problem + ", and is left alone: name one that is not there");
  store(kId, id);
}

void IdFile::refuse(std::string_view why) const noexcept {
  try {
    std::string problem;
    if (!load(problem) && ::access(path_.c_str(), F_OK) == 0) return;
    store(kRefusal, std::as_bytes(std::span(why.substr(0, kMostBytes))));
  } catch (...) {
    // Readers then wait until their deadline.
  }
}

void IdFile::read(std::span<std::byte> id, Deadline deadline) const {
  std::string problem;
  const auto is_read = [&] {
    const std::optional<Content> content = load(problem);
    if (content && content->prefix.job == job_) {
      const auto& bytes = content->bytes;
      if (content->prefix.kind == kRefusal) {
        throw CommError("rank 0: " +
                        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      }
      if (bytes.size() == id.size()) {
        std::ranges::copy(bytes, id.begin());
        return true;
      }
      problem = path_ + " has an id of " + std::to_string(bytes.size()) + " bytes instead of " +
                std::to_string(id.size());
    } else if (content) {
      problem = path_ + " is of job " + std::to_string(content->prefix.job) + ", not " +
                std::to_string(job_);
    }
    return false;
  };
  if (!sleep_until(is_read, deadline, kPause)) {
    fail_at_deadline("while it waited for what rank 0 writes to " + problem);
  }
}

void IdFile::remove() const noexcept {
  ::unlink(path_.c_str());
}

}  // namespace winnow::comm
