#!/usr/bin/env bash
# Does it work on a machine that has nothing? For developers, as root; needs debootstrap and git.
#
#     scripts/fresh.sh [SUITE [COMMAND...]]
#
# Makes an empty Debian (SUITE: bookworm or trixie, which is the default) in a temporary folder (TMPDIR), clones into it
# what is committed, and runs COMMAND there, or else the demo and then every test. Packages come from the mirror that
# this machine uses. Nothing is left behind; KEEP=1 keeps the folder.
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

root=$(mktemp -d "${TMPDIR:-/tmp}/dflock-fresh-XXXXXX")
finish() {
	if [ -n "${KEEP:-}" ]; then
		echo "kept: $root"
	else
		rm -rf --one-file-system "$root"
	fi
}
trap finish EXIT
chmod 755 "$root" # it is the / of users who are not root
echo "an empty $suite from $mirror in $root"
log=$(unshare --mount --propagation private debootstrap --variant=minbase "$suite" "$root" "$mirror" 2>&1) ||
	die "debootstrap: $log"
[ -e "$root/etc/hosts" ] || echo "127.0.0.1 localhost" >"$root/etc/hosts" # which any machine has
git clone -q . "$root/root/dflock"

# Mounts and processes are in namespaces of their own: they end with this command, whatever it left running, and what
# is removed afterwards has nothing mounted in it. The root is a mount, as it is on a machine.
# shellcheck disable=SC2016
unshare --mount --propagation private --pid --fork --kill-child bash -euc '
	root=$1
	shift
	mount --bind "$root" "$root"
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs tmpfs "$root/dev/shm"
	cd "$root"
	chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
		sh -c "cd /root/dflock && \"\$@\"" sh "$@"' fresh "$root" "$@"
echo "$suite: done"
