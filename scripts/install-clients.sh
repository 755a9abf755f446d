#!/usr/bin/env bash
# The libraries of node that tests/clients locks with, in the versions of its package-lock.json: into build-clients, for all builds.
# They come from the registry that this machine's npm uses; no script of theirs is run. Needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."
to=$PWD/build-clients
cmp -s tests/clients/package-lock.json "$to/installed" && exit 0
command -v npm >/dev/null || { echo "$0: there is no npm: run scripts/install-deps.sh test" >&2; exit 1; }
mkdir -p "$to"
rm -f "$to/installed"
cp tests/clients/package.json tests/clients/package-lock.json tests/clients/.npmrc "$to"
(cd "$to" && npm ci --loglevel=error)
cp tests/clients/package-lock.json "$to/installed"
