#!/bin/bash
# The first process of a virtual machine: runs the tests that scripts/vm.sh has written into the file "wanted", below how much
# slower than others this machine is; says how they end; and turns the machine off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /tmp
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 1777 /run/lock
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
hostname vm
tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id # which a machine has that was booted once

cd /usr/src/dflock/tests || exit
uname -a
cat /proc/cmdline
mapfile -t wanted <vm/wanted
export DFLOCK_TEST_SLOW=${wanted[0]} PYTHONDONTWRITEBYTECODE=1 DFLOCK_BUILD=/usr/src/dflock/build
status=0
others=()
for test in "${wanted[@]:1}"; do
	case $test in
	unit/*) CK_DEFAULT_TIMEOUT=$((60 * DFLOCK_TEST_SLOW)) "$DFLOCK_BUILD/$test" || status=1 ;;
	*) others+=("$test") ;;
	esac
done
# Beside one another: most of them wait most of the time.
if [ ${#others[@]} != 0 ]; then
	DFLOCK_TEST_SECONDS=1200 /usr/bin/python3 -m pytest -rs --tb=short --color=no -p no:cacheprovider -n 2 -v "${others[@]}" </dev/null || status=$?
fi
echo "the tests end with $status"
sync
echo o >/proc/sysrq-trigger
sleep 60
