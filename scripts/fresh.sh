#!/usr/bin/env bash
# Does it work on a machine that has nothing? For developers, as root; needs debootstrap and git.
#
#     scripts/fresh.sh [SUITE [COMMAND...]]
#     scripts/fresh.sh SUITE package
#     scripts/fresh.sh SUITE hardening
#
# Makes an empty Debian (SUITE: bookworm or trixie, which is the default) in a temporary folder (TMPDIR), clones into it
# what is committed, and runs COMMAND there, or else the demo and then every test. With `package`: builds the Debian package there
# (tests/packages/build.sh), and installs, upgrades and removes it in two other empty systems: one without systemd, and one that
# systemd has booted (tests/packages/try.sh, booted.sh); and debian/tests run in one more, as Debian's autopkgtest runs them. With `hardening`:
# builds it, and tries in a booted system which of systemd's restrictions the keeper bears (tests/packages/hardening.sh); judges nothing.
# Packages come from the mirror that this machine uses. Nothing is left behind; KEEP=1 keeps the folder.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { echo "$0: $*" >&2; exit 1; }

suite=${1:-trixie}
shift || true
[ $# != 0 ] || set -- sh -c 'scripts/demo.sh && scripts/test.sh'
[ "$(id -u)" = 0 ] || die "only root can make an empty system"
for program in debootstrap git; do
	command -v $program >/dev/null || die "$program is missing: apt-get install $program"
done
mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" |
	sort -u | head -n 1)
[ -n "$mirror" ] || die "apt knows no Debian mirror here: run apt-get update first"

work=$(mktemp -d "${TMPDIR:-/tmp}/dflock-fresh-XXXXXX")
groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$groups" ] || die "no cgroup2 is mounted here"
group=$groups$(awk -F: '$1 == 0 { sub(/\/$/, "", $3); print $3 }' /proc/self/cgroup)/dflock-fresh-$$
end_all() { # what the command left running
	[ -d "$group" ] || return 0
	echo 1 >"$group/cgroup.kill"
	for _ in {1..100}; do
		rmdir "$group" 2>/dev/null && return
		sleep 0.1
	done
	echo "$0: these do not end: $(tr '\n' ' ' <"$group/cgroup.procs")" >&2
}
finish() {
	end_all
	if [ -n "${KEEP:-}" ]; then
		echo "kept: $work"
	else
		rm -rf --one-file-system "$work"
	fi
}
trap finish EXIT
chmod 755 "$work"

empty_system() { # empty_system ROOT
	local log
	if [ ! -d "$work/base" ]; then
		echo "an empty $suite from $mirror in $work"
		log=$(unshare --mount --propagation private debootstrap --variant=minbase "$suite" "$work/base" "$mirror" 2>&1) ||
			die "debootstrap: $log"
		chmod 755 "$work/base" # it is the / of users who are not root
		# Which any machine has.
		printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$work/base/etc/hosts"
		git clone -q . "$work/base/usr/src/dflock"
	fi
	cp -a --reflink=auto "$work/base" "$1"
}

# Mounts are in a namespace of their own, and processes in a control group: they end with this command, whatever it left running, and
# what is removed afterwards has nothing mounted in it. The root is that of its mount namespace, as it is on a machine: out of a chroot,
# nsenter --mount leads to the real one. Packages also have a namespace of
# pids, so that their scripts find no process of this machine. The tests do not: in another one than the first the kernel does not
# show all locks, and so a keeper there keeps leases that it would give back.
pids="--pid --fork --kill-child"
# shellcheck disable=SC2016,SC2086
inside() { # inside ROOT COMMAND...
	local status=0
	mkdir "$group"
	unshare --mount --propagation private $pids bash -euc '
		echo 0 >"$1/cgroup.procs"
		root=$2
		shift 2
		mount --bind "$root" "$root"
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount --rbind /sys "$root/sys" # without it, the journal of Debian 13 does not start
		mount -t tmpfs tmpfs "$root/dev/shm"
		mount -t tmpfs -o mode=755 tmpfs "$root/run"
		mkdir -m 1777 "$root/run/lock"
		cd "$root"
		mkdir old
		pivot_root . old
		umount --lazy old
		rmdir old
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
			sh -c "cd /usr/src/dflock && \"\$@\"" sh "$@"' fresh "$group" "$@" || status=$?
	end_all
	return $status
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
