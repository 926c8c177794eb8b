// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/processors.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

namespace winnow {
namespace {

// Paths are strings: a std::filesystem::path of g++ 12 breaks when there is no memory for it.

std::string line_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return {};
  return value;
}

/// The processors that one control group allows, if it limits them. Version 2 writes "QUOTA PERIOD"
/// or "max PERIOD" to one file, version 1 each to a file of its own, and -1 for no quota.
std::optional<double> quota_of(const std::string& group) {
  std::string quota = line_of(group + "/cpu.cfs_quota_us");
  std::string period = line_of(group + "/cpu.cfs_period_us");
  if (const std::string both = line_of(group + "/cpu.max"); !both.empty()) {
    const std::size_t blank = std::min(both.find(' '), both.size());
    quota = both.substr(0, blank);
    period = both.substr(std::min(blank + 1, both.size()));
  }
  const auto time = number(quota), each = number(period);
  if (!time || !each || *time <= 0 || *each <= 0) return {};
  return *time / *each;
}

/// The first number of a list such as "4,2,1", which is one a level of nested regions.
int threads_wanted(const char* text) {
  const auto value = text != nullptr ? number(text) : std::nullopt;
  constexpr double kMost = 1 << 20;
  return value && *value >= 1 ? static_cast<int>(std::min(*value, kMost)) : 0;
}

}  // namespace

void Processors::read_quota(const std::string& mount, const std::string& groups) {
  std::ifstream in(groups);
  for (std::string line; std::getline(in, line);) {  // HIERARCHY:CONTROLLERS:PATH
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', std::min(first, line.size() - 1) + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos)
      continue;
    // The path may be the host's, which a container does not see: its own group is the mount then.
    std::string group = line.substr(std::min(line.find_first_not_of('/', second + 1), line.size()));
    for (bool more = true; more;) {
      const auto found = quota_of(mount + "/" + controllers + "/" + group);
      if (found && *found < quota) {
        quota = *found;
        quota_id = controllers + "/" + group;
      }
      more = !group.empty();
      const std::size_t parent = group.rfind('/');
      group.resize(parent == std::string::npos ? 0 : parent);
    }
  }
}

Processors Processors::of_this_process() {
  Processors mine;
  const std::string machine = line_of("/proc/sys/kernel/random/boot_id");
  mine.cores_id = machine;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    mine.cores = CPU_COUNT(&set);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) mine.cores_id.append(" ").append(std::to_string(core));
    }
  } else {
    mine.cores = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  mine.read_quota("/sys/fs/cgroup", "/proc/self/cgroup");
  struct stat space = {};  // of names: each container may call its group "/"
  if (::stat("/proc/self/ns/cgroup", &space) == 0)
    mine.quota_id.append(" ").append(std::to_string(space.st_ino)).append(" ").append(machine);
  mine.wanted = threads_wanted(std::getenv("OMP_NUM_THREADS"));
  return mine;
}

int Processors::threads(int on_cores, int on_quota) const {
  double most = static_cast<double>(cores) / on_cores;
  most = std::min(most, quota / on_quota);
  if (wanted > 0) most = std::min(most, static_cast<double>(wanted));
  return std::max(1, static_cast<int>(most));
}

}  // namespace winnow
