#!/usr/bin/env bash
# scripts/ready.sh COMMAND...: runs COMMAND, which tests, where the tests can succeed, and else says within a second why they cannot.
#
# What stands in the way is mended if this script can do so: a checkout that other users cannot enter, or that tests mount over, is copied,
# and the logs (build/logs) come back from the copy; where / is no mount point, as in a chroot, COMMAND gets a mount namespace whose root is /.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$here"
root=$([ "$(id -u)" = 0 ] && echo yes || true)
bad=0
bad() { echo "$0: $*" >&2; bad=1; }

kernel=$(uname -r)
[ "$(uname -s)" = Linux ] || bad "this is no Linux"
[ "$(printf '5.10\n%s\n' "$kernel" | sort -V | head -n 1)" = 5.10 ] || bad "Linux $kernel is too old: 5.10 or later is needed"
[ -r /proc/self/stat ] || bad "/proc is not mounted: mount -t proc proc /proc"
[ -c /dev/null ] && [ -w /dev/null ] || bad "/dev is not mounted: mount --rbind the machine's /dev"
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" != tmpfs ] || [ ! -w /dev/shm ]; then
	bad "/dev/shm is no tmpfs that this user may write to: mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
fi
free() { df --output=avail -m "$1" 2>/dev/null | tail -n 1; } # MB
space() { # space FOLDER MB
	[ "$(free "$1")" -ge "$2" ] || bad "$1 has $(free "$1") MB free: $2 MB are needed"
}
space . 1500
space "${TMPDIR:-/tmp}" 500
[ ! -d /dev/shm ] || space /dev/shm 500
memory=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo 2>/dev/null || true)
[ "${memory:-9999}" -ge 1500 ] || bad "$memory MB of memory are available: 1500 MB are needed"
[ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 4096 ] || bad "processes may open $(ulimit -Hn) descriptors: ulimit -Hn 4096 or more"
if [ -e /dev/fuse ] && { [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; }; then
	bad "$(id -un) may not open /dev/fuse, on which tests mount: chmod 666 /dev/fuse, as on any Debian"
fi
for file in .git build build-clang build-san; do
	[ ! -e $file ] || [ -w $file ] || bad "$here/$file belongs to another user: chown -R $(id -un) $here, or clone anew"
done
[ -w . ] || bad "user $(id -un) may not write to $here"

chrooted=
mountpoint -q / || chrooted=yes
if [ -n "$chrooted" ] && [ -z "$root" ]; then
	bad "/ is no mount point here (a chroot?), and only root can make it one: mount --rbind DIR DIR; then chroot DIR"
fi
if [ -n "$root" ] && ! unshare --mount --propagation unchanged true 2>/dev/null; then
	bad "root may not mount here (a container without CAP_SYS_ADMIN?): run the tests on a machine, or as an ordinary user"
fi
[ $bad = 0 ] || exit 1

closed() { # the folder that keeps other users out of the checkout, or that tests mount something over
	local dir=$here
	while [ "$dir" != / ]; do
		case $dir in /srv | /usr/local | /var/spool | /run | /etc | /dev/shm | /mnt) echo "tests mount something over $dir"; return ;; esac
		[ $((0$(stat -c %a "$dir") & 1)) = 1 ] || { echo "users other than root may not enter $dir"; return; }
		dir=$(dirname "$dir")
	done
}
again() { # again FOLDER COMMAND...: in FOLDER, with a root that is a mount point
	cd "$1"
	shift
	export DFLOCK_READY=1
	if [ -z "$chrooted" ]; then
		"$@"
	else
		echo "/ is no mount point: the tests run in a mount namespace whose root it is"
		scripts/pivot.pl "$@"
	fi
}
reason=${root:+$(closed)}
if [ -z "$reason" ]; then
	again "$here" "$@"
	exit
fi
copy=$(mktemp -d /var/tmp/dflock-tests-XXXXXX)
# build-* folders are worth their copying: they save the time of building.
finish() {
	mkdir -p "$here/build"
	[ ! -d "$copy/build/logs" ] || { rm -rf "$here/build/logs"; cp -a "$copy/build/logs" "$here/build/logs"; }
	rm -rf --one-file-system "$copy"
}
trap finish EXIT
chmod 755 "$copy"
echo "$reason, and the tests start programs of other users there: they run in a copy, $copy"
cp -a --reflink=auto . "$copy"
chmod 755 "$copy"
again "$copy" "$@"
