// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>

#include "comm/c_interface/given.hpp"
#include "comm/c_interface/place.hpp"
#include "comm/c_interface/status.hpp"
#include "kernels/elementwise.hpp"

using winnow::comm::expect_array;
using winnow::comm::guarded;

namespace {

constexpr std::int32_t kMostThreads = 4096;  // as of the option of that name

winnow::kernels::SecondMomentStep step_of(const winnow_second_moment& by) {
  WINNOW_EXPECTS(by.decay > 0 && by.decay < 1, "decay must be between 0 and 1");
  WINNOW_EXPECTS(winnow::comm::expect_finite(by.epsilon, "epsilon") > 0, "epsilon must be above 0");
  WINNOW_EXPECTS(by.steps > 0, "steps count this gradient too: at least 1");
  winnow::comm::expect_finite(by.rate, "rate");
  return winnow::kernels::SecondMomentStep::of(by.decay, by.epsilon, by.steps, by.rate);
}

}  // namespace

extern "C" int winnow_divide_by_moment(const winnow_second_moment* by, float* gradient,
                                       float* moment, std::uint64_t count) {
  return guarded([&] {
    const auto given = winnow::comm::read(by, "by");
    winnow::Exec exec = winnow::comm::exec_of(given.place, given.stream);
    WINNOW_EXPECTS(given.threads >= 0 && given.threads <= kMostThreads,
                   "threads are " + std::to_string(given.threads) + ": must be from 0 to " +
                       std::to_string(kMostThreads));
    exec.threads = std::max<std::int32_t>(given.threads, 1);
    const auto step = step_of(given);
    const auto gradients = expect_array(gradient, count, "gradient");
    const auto moments = expect_array(moment, count, "moment");
    if (count == 0) return;
    WINNOW_EXPECTS(gradient + count <= moment || moment + count <= gradient,
                   "gradient and moment share memory");
    winnow::kernels::divide_by_moment(exec, gradients, moments, step);
  });
}
