#!/usr/bin/env bash
# Does the net work with the kernels of Debian's releases, and on arm64? For developers, as root; needs debootstrap, git and
# qemu-system-x86 or qemu-system-arm; and for another processor than this machine's, qemu-user-static, dpkg-dev and its cross compiler.
#
#     scripts/vm.sh RELEASE [ARCH [TEST...]]
#
# Makes an empty Debian (RELEASE: bookworm or trixie; ARCH: amd64, which is the default, or arm64) in a temporary folder (TMPDIR),
# with the release's own kernel and what tests need; builds there what is committed; and boots it in a virtual machine, where the
# TESTs run: files and folders below tests/, unit tests as unit/test_NAME, and options of pytest. Without any: those of the net. Ends
# with 0 if all succeed.
#
# The processor is emulated (ACCEL=kvm: it is not), so tests wait SLOW times (4) as long as elsewhere before they fail. ROOTS=FOLDER
# keeps systems with packages there, for the next time. The log of the machine is shown; nothing is left behind; KEEP=1 keeps the folder.
set -euo pipefail
cd "$(dirname "$0")/.."
release=${1:?"usage: $0 RELEASE [ARCH [TEST...]]"}
arch=${2:-amd64}
shift $(($# < 2 ? $# : 2))
# Not what makes thousands of calls against the clock.
[ $# != 0 ] || set -- unit/test_{net_filter,net_thread,seeout,onbehalf,underway} \
	cluster/test_{netted,net_kinds,net_key,net_around,calls_under_way}.py net interpose/test_interpose.py \
	-k "not under_load and not leaves_room and not two_hosts and not overlap and not supervisor_ends and not costs_one_more"
case $arch in
amd64)
	machine=(qemu-system-x86_64 -cpu max)
	package=qemu-system-x86
	emulator=qemu-x86_64
	options="console=ttyS0 syscall.x32=y" # Debian's kernels know x32 programs, but refuse them
	;;
arm64)
	machine=(qemu-system-aarch64 -M virt -cpu cortex-a72) # which runs AArch32 programs, too
	package=qemu-system-arm
	emulator=qemu-aarch64
	options=console=ttyAMA0
	;;
*) echo "$0: for amd64 and arm64" >&2; exit 2 ;;
esac
. scripts/empty.sh
needs "${machine[0]}" $package
needs mke2fs e2fsprogs

# Everything but the compiler is the root's own: its compiler, emulated, takes half an hour.
make_across() {
	local triplet own
	triplet=$(dpkg-architecture -a "$arch" -q DEB_HOST_MULTIARCH)
	needs "$triplet-gcc" "gcc-${triplet//_/-}"
	own=$root/usr/lib/$triplet
	PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$own/pkgconfig:$root/usr/share/pkgconfig \
		make -s -C "$root/usr/src/dflock" -j"$(nproc)" all agents "${units[@]}" CC="$triplet-gcc --sysroot=$root -nostdinc \
			-isystem $("$triplet-gcc" -print-file-name=include) -isystem $root/usr/include/$triplet -isystem $root/usr/include \
			-B$own -L$own -Wl,-rpath-link,$own"
}

# For AArch32 programs, which test_net_kinds.py builds, there is a compiler of their own.
packages="linux-image-$arch initramfs-tools"
[ "$arch" = amd64 ] || packages="$packages gcc-arm-linux-gnueabihf"
roots=${ROOTS:-$work}
mkdir -p "$roots"
roots=$(cd "$roots" && pwd)
root=$roots/$release-$arch
if [ ! -d "$root" ]; then
	[ "$arch" = "$(dpkg --print-architecture)" ] || grep -qs enabled /proc/sys/fs/binfmt_misc/$emulator ||
		die "programs of $arch do not run here: apt-get install qemu-user-static, and mount /proc/sys/fs/binfmt_misc"
	bootstrap "$release" "$root.new" --arch="$arch"
	mkdir "$root.new/usr/src/dflock"
	cp scripts/install-deps.sh "$root.new/usr/src/dflock"
	inside "$root.new" ./install-deps.sh test
	# shellcheck disable=SC2086
	inside "$root.new" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
	mv "$root.new" "$root"
fi

rm -rf "$root/usr/src/dflock"
mkdir "$root/usr/src/dflock"
git archive HEAD | tar -x -C "$root/usr/src/dflock"
units=()
for test; do
	[[ $test != unit/* ]] || units+=("build/$test")
done
if [ "$arch" = "$(dpkg --print-architecture)" ]; then
	inside "$root" make -s -j"$(nproc)" all agents "${units[@]}"
else
	make_across
fi
printf '%s\n' "${SLOW:-4}" "$@" >"$root/usr/src/dflock/tests/vm/wanted"

mke2fs -q -t ext4 -d "$root" "$work/disk" 12G
"${machine[@]}" -accel "${ACCEL:-tcg}" -smp 2 -m 4G -nographic -nic none -no-reboot \
	-kernel "$root"/boot/vmlinuz-* -initrd "$root"/boot/initrd.img-* \
	-append "root=/dev/vda rw init=/usr/src/dflock/tests/vm/init.sh quiet panic=-1 $options" \
	-drive file="$work/disk",if=virtio,format=raw,cache=unsafe </dev/null | tee "$work/log"
status=$(tr -d '\r' <"$work/log" | sed -n 's/^the tests end with //p')
[ -n "$status" ] || die "the machine ended before its tests"
exit "$status"
