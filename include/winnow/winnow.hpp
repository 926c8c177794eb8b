// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Winnow's C++ interface. mpi.hpp adds the MPI transport.
#include <winnow/allreducer.hpp>
#include <winnow/elements.hpp>
#include <winnow/error.hpp>
#include <winnow/exec.hpp>
#include <winnow/options.hpp>
#include <winnow/reduce_op.hpp>
#include <winnow/stats.hpp>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>
