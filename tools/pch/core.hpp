// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
//
// Headers that many sources of the library include, compiled once if b_pch is on. Each source still
// includes what it uses; builds without b_pch would fail otherwise. (No #pragma once: g++ warns of
// it here.)
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>
