#!/usr/bin/env bash
# debian/tests with the built package, in an empty system (scripts/fresh.sh), as root: autopkgtest itself is the testbed ("null"), which
# this system is for.
set -euo pipefail
cd "$(dirname "$0")/../.."
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -y -qq --no-install-recommends autopkgtest dpkg-dev >/dev/null
autopkgtest --no-built-binaries "$1"/first/dflock_*.deb "$1"/first/dflock-postgresql_*.deb "$1"/first/dflock-zookeeper_*.deb "$PWD" -- null
