#!/usr/bin/env bash
# Does it work on a machine that has nothing? For developers, as root; needs debootstrap and git.
#
#     scripts/fresh.sh [SUITE [COMMAND...]]
#     scripts/fresh.sh SUITE user
#     scripts/fresh.sh SUITE package
#     scripts/fresh.sh SUITE hardening
#
# Makes an empty Debian (SUITE: bookworm or trixie, which is the default) in a temporary folder (TMPDIR), clones into it
# what is committed, and runs COMMAND there, or else the demo and then every test. With `user`: an ordinary user who may use sudo clones it
# at home, and runs both. With `package`: builds the Debian package there
# (tests/packages/build.sh), and installs, upgrades and removes it in two other empty systems: one without systemd, and one that
# systemd has booted (tests/packages/try.sh, booted.sh); and debian/tests run in one more, as Debian's autopkgtest runs them. With `hardening`:
# builds it, and tries in a booted system which of systemd's restrictions the keeper bears (tests/packages/hardening.sh); judges nothing.
# Packages come from the mirror that this machine uses. Nothing is left behind; KEEP=1 keeps the folder.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-trixie}
both='scripts/demo.sh && scripts/test.sh'
shift || true
[ $# != 0 ] || set -- sh -c "$both"
. scripts/empty.sh

empty_system() { # empty_system ROOT
	if [ ! -d "$work/base" ]; then
		bootstrap "$suite" "$work/base"
		git clone -q . "$work/base/usr/src/dflock"
	fi
	cp -a --reflink=auto "$work/base" "$1"
}

system_with_packages() { # system_with_packages NAME
	empty_system "$work/$1"
	cp -a "$work/build/root/packages" "$work/$1/root/packages"
}

case "$*" in
package | hardening)
	empty_system "$work/build"
	inside "$work/build" tests/packages/build.sh /root/packages "$*"
	system_with_packages booted
	inside "$work/booted" tests/packages/booted.sh prepare
	;;
*)
	empty_system "$work/root"
	# shellcheck disable=SC2016
	[ "$*" != user ] || set -- sh -euc '
		apt-get update -q=2
		DEBIAN_FRONTEND=noninteractive apt-get install -q=2 --no-install-recommends git sudo >/dev/null
		useradd -m -s /bin/bash guest
		echo "guest ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/guest
		chown -R guest: .
		exec su - guest -c "git clone -q $PWD dflock && cd dflock && $1"' user "$both"
	tr -d - </proc/sys/kernel/random/uuid >"$work/root/etc/machine-id" # which a machine has that was booted once
	pids=
	inside "$work/root" "$@"
	;;
esac
case "$*" in
package)
	system_with_packages plain
	inside "$work/plain" tests/packages/try.sh /root/packages
	system_with_packages autopkgtest
	inside "$work/autopkgtest" tests/packages/autopkgtest.sh /root/packages
	tests/packages/boot.sh "$work/booted" /usr/src/dflock/tests/packages/booted.sh try /root/packages
	;;
hardening)
	tests/packages/boot.sh "$work/booted" /usr/src/dflock/tests/packages/hardening.sh /root/packages
	;;
esac
echo "$suite: done"
