// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/job.hpp"

#include <cstdlib>
#include <string_view>

namespace winnow::comm {
namespace {

std::string_view value_of(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

// Equal on all ranks of a job, whatever launches them within it.
constexpr const char* kOfJobs[] = {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_JOB_ID",
                                   "PBS_JOBID",           "LSB_JOBID",   "FLUX_JOB_ID"};
// The variable that names one launch within such a job. Where each node has a torchrun of its own,
// these may differ between nodes; torchrun's own variables tell its jobs apart.
constexpr const char* kOfLaunches[] = {"SLURM_STEP_ID", "PMIX_NAMESPACE", "PMI_JOBID",
                                       "OMPI_MCA_ess_base_jobid"};

/// Whether all ranks have one torchrun. Several count their restarts each for itself, and the
/// numbers may differ; each new attempt then has another MASTER_PORT.
bool has_one_agent() {
  const std::string_view groups = value_of("GROUP_WORLD_SIZE");
  return groups.empty() || groups == "1";
}

void add(std::string& job, const char* name) {
  const std::string_view value = value_of(name);
  if (value.empty()) return;
  job.append(job.empty() ? "" : " ").append(name).append(1, '=');
  for (const char c : value) job += c == '\n' ? ' ' : c;
}

}  // namespace

std::string job_of_launcher() {
  std::string job;
  for (const char* const name : kOfJobs) add(job, name);
  const bool has_torchrun = !value_of("TORCHELASTIC_RUN_ID").empty();
  if (!has_torchrun)
    for (const char* const name : kOfLaunches) add(job, name);
  else if (has_one_agent())
    add(job, "TORCHELASTIC_RESTART_COUNT");
  return job;
}

}  // namespace winnow::comm
