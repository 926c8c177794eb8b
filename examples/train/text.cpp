// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "train/exit.hpp"
#include "train/random.hpp"

namespace train {

namespace fs = std::filesystem;

namespace {

std::string read_file(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw Exit(kUsageStatus, "cannot read " + path.string() + ": it is a directory");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    throw Exit(kUsageStatus, "cannot read " + path.string() + ": " +
                                 (errno != 0 ? std::strerror(errno) : "input error"));
  }
  return bytes;
}

}  // namespace

std::string read_text(const fs::path& path) {
  std::string bytes = read_file(path);
  if (bytes.empty()) throw Exit(kUsageStatus, path.string() + " is empty");
  if (bytes.size() < kMinTextBytes) {
    std::ostringstream message;
    message << path.string() << " is too short: " << bytes.size() << " bytes, " << kMinTextBytes
            << " are needed";
    throw Exit(kUsageStatus, message.str());
  }
  return bytes;
}

fs::path default_text() {
  const fs::path built = fs::path(TRAIN_SOURCE_ROOT) / kDefaultText;
  std::error_code error;
  if (fs::exists(built, error)) return built;
  for (fs::path root = fs::current_path(); root.has_relative_path(); root = root.parent_path()) {
    if (fs::exists(root / kDefaultText, error)) return root / kDefaultText;
  }
  throw Exit(kUsageStatus, "there is no " + std::string(kDefaultText) +
                               " at " TRAIN_SOURCE_ROOT " or here; name a file with --text");
}

Corpus::Corpus(const std::string& bytes, int context)
    : bytes_(bytes.begin(), bytes.end()),
      context_(static_cast<std::uint64_t>(context)),
      groups_(std::max<std::uint64_t>(1, bytes_.size() / (kBlocks * kBlockBytes))),
      block_(bytes_.size() / (kBlocks * groups_)) {}

std::uint64_t Corpus::fingerprint() const {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes_) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

void Corpus::sample(std::uint64_t seed, std::uint64_t step, int rank,
                    std::span<std::uint64_t> targets) const {
  const std::uint64_t in_group = (kBlocks - 1) * block_ - context_;
  const auto positions = static_cast<double>(groups_ * in_group);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double place = random_unit({seed, step, static_cast<std::uint64_t>(rank), i});
    const auto position = static_cast<std::uint64_t>(place * positions);
    targets[i] = position / in_group * kBlocks * block_ + context_ + position % in_group;
  }
}

std::vector<std::uint64_t> Corpus::held_out(std::size_t limit) const {
  const std::uint64_t in_group = block_ - context_;
  const std::uint64_t positions = groups_ * in_group;
  std::vector<std::uint64_t> targets(std::min<std::uint64_t>(limit, positions));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::uint64_t position = i * positions / targets.size();
    targets[i] =
        (position / in_group * kBlocks + kBlocks - 1) * block_ + context_ + position % in_group;
  }
  return targets;
}

}  // namespace train
