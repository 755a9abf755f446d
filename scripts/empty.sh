# shellcheck shell=bash
# Empty Debians, for scripts/fresh.sh and scripts/vm.sh. Sourced in the checkout's folder, as root; `set -euo pipefail` is on. What is
# made is in $work, a folder that is removed at the end (KEEP=1 keeps it).
die() { echo "$0: $*" >&2; exit 1; }
needs() { # needs PROGRAM PACKAGE
	command -v "$1" >/dev/null || die "$1 is missing: apt-get install $2"
}

[ "$(id -u)" = 0 ] || die "only root can make an empty system"
needs debootstrap debootstrap
needs git git
mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" |
	sort -u | head -n 1)
[ -n "$mirror" ] || die "apt knows no Debian mirror here: run apt-get update first"
groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$groups" ] || die "no cgroup2 is mounted here"
group=$groups$(awk -F: '$1 == 0 { sub(/\/$/, "", $3); print $3 }' /proc/self/cgroup)/dflock-fresh-$$

work=$(mktemp -d "${TMPDIR:-/tmp}/dflock-fresh-XXXXXX")
chmod 755 "$work"
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

bootstrap() { # bootstrap SUITE ROOT [OPTION...]
	local suite=$1 root=$2 log
	shift 2
	echo "an empty $suite from $mirror in $root"
	log=$(unshare --mount --propagation private debootstrap --variant=minbase "$@" "$suite" "$root" "$mirror" 2>&1) ||
		die "debootstrap: $log"
	chmod 755 "$root" # it is the / of users who are not root
	# Which any machine has.
	printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$root/etc/hosts"
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
