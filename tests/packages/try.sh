#!/usr/bin/env bash
# The package in an empty system without systemd (scripts/fresh.sh), as root: install, run a keeper by hand, upgrade while jobs hold
# locks, remove, purge. FOLDER has first/ and next/, two versions.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
folder=$1
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -y -qq --no-install-recommends redis-server procps >/dev/null
[ -z "$(traces)" ] || fail "there is something already: $(traces)"

apt-get install -y -qq --no-install-recommends "$folder"/first/dflock_*.deb >/dev/null
library=$(echo /usr/lib/*/libdflock.so)
[ -z "$(LD_PRELOAD=libdflock.so true 2>&1)" ] || fail "LD_PRELOAD=libdflock.so: $(LD_PRELOAD=libdflock.so true 2>&1)"
dflock check | grep -q /etc/dflock.conf || fail "the example is no configuration: $(dflock check 2>&1)"
dpkg-query -W -f '${Conffiles}' dflock | grep -q ' /etc/dflock.conf ' || fail "/etc/dflock.conf is no conffile"
[ -e /usr/share/bash-completion/completions/dflock ] && [ -e /usr/share/zsh/vendor-completions/_dflock ] || fail "no completion"
# The other engines of the store are packages of their own.
for engine in postgresql zookeeper; do
	echo "store = { $engine = \"host=a\"; };" >/tmp/engine.conf
	refused dflock check --config /tmp/engine.conf
	grep -q "needs the package dflock-$engine" <<<"$said" || fail "$said"
	apt-get install -y -qq --no-install-recommends "$folder"/first/dflock-${engine}_*.deb >/dev/null
	dflock check --config /tmp/engine.conf >/dev/null || fail "dflock-$engine is not found"
	dpkg --purge dflock-$engine >/dev/null
	rm /tmp/engine.conf
done

begin
trap end EXIT
cp "$work/ours.conf" /etc/dflock.conf
# As docs/operating.md says.
start() {
	install -d -m 755 /run/dflock
	DFLOCK_CONFIG=/etc/dflock.conf dflockd --foreground --config /etc/dflock.conf --runtime-dir /run/dflock 2>>"$work/log" &
	keeper=$!
	await "the keeper serves" serves
}
start
other dflock init >/dev/null
await "the store is open" sh -c 'dflock doctor flock >"$1/doctor" 2>&1' doctor "$work"
grep -q "the library is $library" "$work/doctor" || fail "doctor: $(cat "$work/doctor")"
job root
job user setpriv --reuid=nobody --regid=nogroup --clear-groups
goes_on root && goes_on user
before=$(fence root)

# The configuration was changed by the administrator: it stays.
dpkg -i --force-confdef "$folder"/next/dflock_*.deb >"$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
cmp -s "$work/ours.conf" /etc/dflock.conf || fail "the upgrade has replaced the configuration"
goes_on root && goes_on user
kill -QUIT $keeper
wait $keeper || fail "the keeper ended with $?"
start
goes_on root && goes_on user
[ "$(fence root)" = "$before" ] || fail "the lease is another one: fence $(fence root), not $before"

# A removal must not leave jobs without a keeper.
for how in remove purge; do
	refused dpkg --$how dflock
	grep -q "locks/root\|locks/user" <<<"$said" || fail "it does not say which lock is held: $said"
	goes_on root && goes_on user
	dpkg-query -W -f '${Status}' dflock | grep -q installed || fail "it is gone all the same"
done
end_job root && end_job user
await "nobody has the lock" is_free root
dpkg --remove dflock >/dev/null
wait $keeper || fail "the keeper ended with $?"
[ ! -e "$library" ] && [ -e /etc/dflock.conf ] || fail "removed: $(traces)"
install -D /dev/null /run/dflock/65534/keeper.sock # a user's keeper goes on
dpkg --purge dflock >/dev/null
[ -e /run/dflock/65534/keeper.sock ] || fail "purge takes a user's keeper away from its programs"
rm -r /run/dflock/65534
rmdir /run/dflock || fail "purge leaves behind: $(traces)"
[ -z "$(traces)" ] || fail "purge leaves behind: $(traces)"
echo "without systemd: installed, upgraded under held locks, removed, purged"
