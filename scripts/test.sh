#!/usr/bin/env bash
# Every test, on a bare Debian 12 or 13: installs what is missing, builds with gcc and clang, runs. See `make help` for the parts.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-deps.sh test
# Where no registry of npm is reached, tests/clients skips what needs these, and says so.
scripts/install-clients.sh || echo "the libraries of node are missing: what needs them in tests/clients is skipped"
# Suites wait for processes and times, too.
suites=$((2 * $(nproc)))
part() { printf '\n== %s (after %d min %02d s)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }

part "build: gcc, clang, sanitizers"
make -s -j2 all agents
make -s -j2 CC=clang BUILD=build-clang all agents
make -s -j2 SAN=1 BUILD=build-san all agents

part "unit tests under the address and undefined-behaviour sanitizers"
make -s -j$suites SAN=1 BUILD=build-san unit
part "unit tests under valgrind"
make -s -j$suites memcheck
part "what the documentation and the sources must agree on"
make -s check-docs
part "the models and their mutants"
make -s model-check
part "fuzzing"
make -s fuzz
part "the simulator"
make -s sim
part "tests with processes"
make -s check
part "tests with processes, of sanitized programs"
make -s check-san T="cluster/test_flock.py cluster/test_record.py cluster/test_keeper_dies.py cluster/test_parent_dies.py cluster/test_freeze.py faults/test_room.py"
part "the demo"
scripts/demo.sh
part "all is well"
