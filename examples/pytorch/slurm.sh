#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: sbatch [--nodes=N] examples/pytorch/slurm.sh [OPTION OF ddp.py...]
#
# Trains examples/pytorch/ddp.py on N nodes of a cluster under Slurm. Submit it from the top folder, with
# the environment active that has torch and Winnow. RANKS_PER_NODE says how many processes a node runs.
# If nodes have several networks, WINNOW_SOCKET_IFNAME names those for gradients.
#SBATCH --job-name=winnow
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
set -euo pipefail

port=$((20000 + SLURM_JOB_ID % 10000))
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun python -m torch.distributed.run --nnodes="$SLURM_JOB_NUM_NODES" \
  --nproc_per_node="${RANKS_PER_NODE:-1}" --rdzv_id="$SLURM_JOB_ID" --rdzv_backend=c10d \
  --rdzv_endpoint="$first:$port" "$SLURM_SUBMIT_DIR/examples/pytorch/ddp.py" "$@"
