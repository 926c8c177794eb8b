// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
//
// Headers that many tests include, compiled once per library if b_pch is on. Each test still
// includes what it uses; builds without b_pch would fail otherwise. (No #pragma once: g++ warns of
// it here.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>
