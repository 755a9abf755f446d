#!/usr/bin/env bash
# Builds the Debian package of what is committed: for developers, and for those who want it before a release.
#
#     scripts/deb.sh FOLDER [VERSION]
#     DEB_ARCH=arm64 scripts/deb.sh FOLDER      with Debian's cross compiler: dpkg --add-architecture arm64, apt-get update, and
#                                               apt-get build-dep -a arm64 -P cross,nocheck . in the checkout
#
# Exports the last commit, and runs dpkg-buildpackage there, which says what is missing. The packages, their .changes and
# .buildinfo come into FOLDER. VERSION: another one than the newest in debian/changelog with the release that it was built for
# (0.2.0~deb12): a package that was built on Debian 13 needs libraries that Debian 12 has not. Two builds of one commit give
# the same files. Root needs no fakeroot, and users need none either.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: $0 FOLDER [VERSION]" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
for program in git dpkg-buildpackage dh; do
	command -v $program >/dev/null || { echo "$program is missing: apt-get install git dpkg-dev debhelper" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/dflock-deb-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/dflock"
echo "exporting commit $(git rev-parse --short=12 HEAD)"
git archive HEAD | tar -x -C "$work/dflock"
if [ -n "${2:-}" ]; then
	maintainer=$(sed -n 's/^Maintainer: //p' debian/control)
	printf 'dflock (%s) UNRELEASED; urgency=medium\n\n  * Built from commit %s.\n\n -- %s  %s\n\n' "$2" "$(git rev-parse --short=12 HEAD)" \
		"$maintainer" "$(git log -1 --format=%cD)" | cat - debian/changelog >"$work/dflock/debian/changelog"
else
	release=$(. /etc/os-release && echo "${VERSION_ID:+~deb$VERSION_ID}")
	sed -i "1s/)/$release)/" "$work/dflock/debian/changelog"
fi
# One line for each step: a build takes minutes on a small machine.
(cd "$work/dflock" && dpkg-buildpackage -b -us -uc ${DEB_ARCH:+-a "$DEB_ARCH" -Pcross,nocheck}) 2>&1 | tee "$work/log" | awk '/^[ \t]*dh_(auto_|strip|builddeb)/ && !told[$1]++ { print "  " $1; fflush() }' ||
	{ cat "$work/log" >&2; exit 1; }
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$folder/"
ls "$folder"
