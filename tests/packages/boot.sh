#!/usr/bin/env bash
# Boots ROOT, an empty system that has systemd, in namespaces of its own, runs COMMAND in it, and ends it. For scripts/fresh.sh, as root.
#
#     tests/packages/boot.sh ROOT COMMAND...
#
# The kernel is this machine's: its settings (/proc/sys) cannot be changed from in there, devices are those that every program may
# use, and control groups are below a group of its own. Not systemd-nspawn, which needs a systemd on this machine, too.
set -euo pipefail
root=$(cd "$1" && pwd)
shift

# The second hierarchy of a machine that has the first one as well, or the only one.
groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$groups" ] || { echo "$0: no cgroup2 is mounted here" >&2; exit 1; }
own=$(awk -F: '$1 == 0 { print $3 }' /proc/self/cgroup)
group=$groups${own%/}/dflock-boot-$$
booted=
finish() {
	[ -z "$booted" ] || kill -9 "$booted" 2>/dev/null || true
	wait 2>/dev/null || true
	for i in 1 2 3 4 5 6 7 8 9 10; do # processes that were killed leave it soon
		find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
		[ -d "$group" ] || break
		sleep 0.2
	done
}
trap finish EXIT
mkdir "$group"

# shellcheck disable=SC2016
bash -euc 'echo $$ >"$2/cgroup.procs"; exec unshare --mount --propagation private --pid --uts --ipc --cgroup --fork --kill-child bash -euc "$1" boot "$3"' \
	boot '
	root=$1
	mount --bind "$root" "$root"
	mount -t proc proc "$root/proc"
	mount --bind "$root/proc/sys" "$root/proc/sys"
	mount -o remount,bind,ro "$root/proc/sys"
	mount -t sysfs -o ro sysfs "$root/sys" # without it, the journal of Debian 13 does not start
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
	mount -t tmpfs -o mode=755 tmpfs "$root/dev"
	for device in null zero full random urandom tty; do
		touch "$root/dev/$device"
		mount --bind "/dev/$device" "$root/dev/$device"
	done
	mkdir "$root/dev/shm" "$root/dev/pts"
	mount -t tmpfs tmpfs "$root/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
	ln -s pts/ptmx "$root/dev/ptmx"
	ln -s /proc/self/fd "$root/dev/fd"
	mount -t tmpfs -o mode=755 tmpfs "$root/run"
	mkdir -m 1777 "$root/run/lock"
	hostname fresh
	cd "$root"
	mkdir -p old
	pivot_root . old
	umount -l /old
	rmdir /old
	exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --show-status=0
' "$group" "$root" >"$root/root/boot.log" 2>&1 &
unshared=$!
deadline=$((SECONDS + 60))
inside() { nsenter --target "$booted" --all -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"; }
is_up() {
	local state
	state=$([ -z "$booted" ] || inside systemctl is-system-running 2>/dev/null || true) # it fails if it is degraded
	[ "$state" = running ] || [ "$state" = degraded ]
}
until is_up; do
	booted=$(cat "/proc/$unshared/task/$unshared/children" 2>/dev/null || true)
	booted=${booted%% *}
	[ $SECONDS -lt $deadline ] || { echo "$0: systemd does not boot:" >&2; cat "$root/root/boot.log" >&2; exit 1; }
	sleep 0.2
done
inside sh -c 'cd /usr/src/dflock && "$@"' sh "$@"
