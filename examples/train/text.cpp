// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/text.hpp"

#include <algorithm>
#include <array>
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

constexpr std::array kTextSuffixes = {".md", ".hpp", ".cpp",   ".h",   ".cu",  ".cuh",
                                      ".py", ".sh",  ".build", ".txt", ".yml", ".gp"};

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

bool is_generated(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.starts_with('.') || name.starts_with("build") || name.starts_with("__") ||
         name == "deps" || name == "results" || name == "subprojects";
}

bool is_text(const fs::path& file) {
  return std::find(kTextSuffixes.begin(), kTextSuffixes.end(), file.extension().string()) !=
         kTextSuffixes.end();
}

bool is_repository(const fs::path& root) {
  std::error_code error;
  return fs::exists(root / "include/winnow/winnow.hpp", error);
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

std::string read_repository(const fs::path& root) {
  std::vector<std::string> paths;
  for (fs::recursive_directory_iterator entry(root), end; entry != end; ++entry) {
    if (entry->is_symlink()) continue;
    if (entry->is_directory()) {
      if (is_generated(entry->path())) entry.disable_recursion_pending();
    } else if (is_text(entry->path())) {
      paths.push_back(entry->path().lexically_relative(root).generic_string());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::string bytes;
  for (const std::string& path : paths) bytes += read_file(root / path);
  return bytes;
}

fs::path find_repository() {
  if (is_repository(TRAIN_SOURCE_ROOT)) return TRAIN_SOURCE_ROOT;
  for (fs::path root = fs::current_path(); root.has_relative_path(); root = root.parent_path()) {
    if (is_repository(root)) return root;
  }
  throw Exit(kUsageStatus, "there is no Winnow repository at " TRAIN_SOURCE_ROOT
                           " or here to train on; name a file with --text");
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
