#!/usr/bin/env bash
# All that waits for a CUDA device, in one run of a few minutes: benchmarks/gpu_session.sh [--cpu]
# Needs torch, triton and transformers; no Django. PYTHON names the interpreter. --cpu: the same steps, tiny, anywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] && OWN=.venv/bin/python || OWN=python
PYTHONPATH=. exec "${PYTHON:-$OWN}" benchmarks/gpu_session.py "$@"
