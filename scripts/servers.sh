#!/usr/bin/env bash
# Other servers to test with, for developers, on Debian; needs no root.
#
#     scripts/servers.sh FOLDER
#
# Puts the servers of the next Debian (trixie: Redis 8, Valkey 8) into FOLDER, each as a program FOLDER/NAME that runs with the
# libraries of that Debian, whatever this machine has. `make check-stores` runs the tests of the store with each. Packages come
# from the mirror that this machine uses. No Debian has Redis 6.2.
set -euo pipefail
die() { echo "$0: $*" >&2; exit 1; }

[ $# = 1 ] || die "name one folder"
suite=trixie
packages="redis-tools valkey-tools libc6 libatomic1 libcap2 libgcc-s1 libjemalloc2 liblzf1 libssl3t64 libstdc++6 libsystemd0 libzstd1 zlib1g"
mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" |
	sort -u | head -n 1)
[ -n "$mirror" ] || die "apt knows no Debian mirror here: run apt-get update first"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
mkdir -p "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial" "$folder/apt/packages" "$folder/root"
touch "$folder/apt/status"
echo "deb $mirror $suite main" >"$folder/apt/sources.list"

# An apt of its own: what this machine has installed, and from where, does not matter.
own_apt() {
	local a=$folder/apt
	apt-get -q -o Dir::Etc::SourceList="$a/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State="$a/state" \
		-o Dir::State::status="$a/status" -o Dir::Cache="$a/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}
own_apt update >/dev/null
# shellcheck disable=SC2086
(cd "$folder/apt/packages" && own_apt download $packages >/dev/null)
for package in "$folder"/apt/packages/*.deb; do
	dpkg-deb -x "$package" "$folder/root"
done

linker=$(find "$folder/root" -name 'ld-linux*.so.*' | head -n 1)
libraries=$(find "$folder/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd :)
[ -n "$linker" ] || die "the packages have no dynamic linker"
for kind in redis valkey; do
	program=$folder/root/usr/bin/$kind-check-rdb # the same program as the server, by another name
	[ -x "$program" ] || die "$program is missing"
	# argv[0] says which of its parts it is.
	printf '#!/bin/sh\nexec %q --argv0 %s-server --library-path %q %q "$@"\n' "$linker" "$kind" "$libraries" "$program" \
		>"$folder/$kind-server"
	chmod 755 "$folder/$kind-server"
	"$folder/$kind-server" --version
done
