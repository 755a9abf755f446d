#!/usr/bin/env bash
# Makes the source package for RHEL 9 and its kin of what is committed: scripts/rpm.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
command -v rpmbuild >/dev/null || { echo "rpmbuild is missing: dnf install rpm-build, or apt-get install rpm" >&2; exit 1; }
version=$(cat VERSION)
work=$(mktemp -d "${TMPDIR:-/tmp}/dflock-rpm-XXXXXX")
trap 'rm -rf "$work"' EXIT
git archive --prefix="dflock-$version/" -o "$work/dflock-$version.tar.gz" HEAD
sed "s/@VERSION@/$version/" packaging/rpm/dflock.spec >"$work/dflock.spec"
rpmbuild -bs --nodeps --define "_sourcedir $work" --define "_srcrpmdir $folder" "$work/dflock.spec"
