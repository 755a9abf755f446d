#!/usr/bin/env bash
# The package where systemd runs (boot.sh), as root: the unit's start, reload, watchdog, restart and stop, an upgrade while jobs hold
# locks, and the removal.
#
#     booted.sh prepare       before the boot: what the test needs
#     booted.sh try FOLDER    FOLDER has first/ and next/, two versions
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
export DEBIAN_FRONTEND=noninteractive

if [ "$1" = prepare ]; then
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends systemd systemd-sysv dbus redis-server procps cron >/dev/null
	rm /usr/sbin/policy-rc.d
	exit 0
fi
folder=$2
main() { systemctl show -P MainPID dflock; }
log() { journalctl -q --no-pager -o cat -u dflock "$@"; }
errors() { log | grep -c "syntax error" || true; } # in the configuration
more_errors() { [ "$(errors)" -gt "$1" ]; }
fail() { # as in common.sh, with what the keeper and systemd have said
	echo "FAILED: $*" >&2
	log -n 20 >&2
	systemctl --no-pager status dflock >&2 || true
	exit 1
}
active() { [ "$(systemctl show -P ActiveState dflock)" = "$1" ]; }

apt-get install -y -qq --no-install-recommends "$folder"/first/dflock_*.deb >/dev/null
active inactive && [ "$(systemctl is-enabled dflock)" = disabled ] || fail "the package has started or enabled it"
# (man is not installed here.)
if systemd-analyze verify /usr/lib/systemd/system/dflock.service 2>&1 | grep -v "Command 'man " | grep dflock; then fail "the unit is not valid"; fi
systemd-analyze security --no-pager dflock | tail -n 1
[ "$(systemctl show -P OOMPolicy dflock)" = continue ] || fail "one process that the kernel kills for memory stops the keeper"

begin
trap end EXIT
echo "nonsense" >/etc/dflock.conf
refused systemctl start dflock
await "the journal says why" more_errors 0
active failed || fail "the unit is $(systemctl show -P ActiveState dflock): it is tried again and again"
cp "$work/ours.conf" /etc/dflock.conf
systemctl enable --now dflock 2>/dev/null
serves || fail "systemctl start has returned before programs are served"
await "the store is there" sh -c 'dflock status --json | grep -q "\"up\": true"'
other dflock init >/dev/null
[ "$(stat -c %a /run/dflock)" = 755 ] || fail "users cannot reach the keeper"

await "the journal has the fields of a line" sh -c 'journalctl -q -u dflock DFLOCK_EVENT=keeper-serves | grep -q "version .* serves /run/dflock"'

job root
job user setpriv --reuid=nobody --regid=nogroup --clear-groups
goes_on root && goes_on user
before=$(fence root)

# A user who may not read the password can do what jobs need.
as_user() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
refused as_user cat /etc/dflock.password
as_user dflock run --require=/srv/locks/other -- flock -n /srv/locks/other true || fail "a user cannot lock"
as_user dflock check --require /srv/locks/other >/dev/null && as_user dflock who /srv/locks/user | grep -q "pid $pid_user " ||
	fail "a user is not told: $(as_user dflock who /srv/locks/user)"
for command in stop reload "init --force"; do
	refused as_user dflock $command
	grep -q "only root or the keeper's user" <<<"$said" || fail "$command: $said"
done

# reload
cp /etc/dflock.conf "$work/good.conf"
echo "nonsense" >>/etc/dflock.conf
count=$(errors)
refused systemctl reload dflock
active active && goes_on user || fail "a reload that was refused has changed something"
await "the journal says why" more_errors "$count"
sed 's/^protect = ( /&{ path = "\/srv\/new"; }, /' "$work/good.conf" >/etc/dflock.conf
systemctl reload dflock
dflock check --require /srv/new >/dev/null || fail "not reloaded"
goes_on root && goes_on user
cp "$work/good.conf" /etc/dflock.conf
systemctl kill --signal=HUP --kill-who=main dflock
# Not by the journal, which has a line of one cause once a minute. A keeper does not take back protection by itself.
await "SIGHUP reloads" sh -c 'dflock status --json | tr -d "\n " | grep -q "\"rules\":{\"count\":1,"'
goes_on root && goes_on user

# A configuration that is broken takes down no keeper that runs, and keeps none from taking its leases up.
echo "nonsense" >>/etc/dflock.conf
parent=$(main)
systemctl kill --signal=HUP --kill-who=main dflock
await "the journal says why" sh -c 'journalctl -q --no-pager -o cat -u dflock | grep -q "SIGHUP: not reloaded: .*syntax error"'
[ "$(main)" = "$parent" ] && goes_on root && goes_on user
systemctl restart dflock
[ "$(main)" != "$parent" ] && goes_on root && goes_on user
[ "$(fence root)" = "$before" ] || fail "the lease is another one"
await "--check says that the file is not in force" sh -c 'dflock status --check | grep -q "WARNING.*older rules"'
rm /etc/dflock.conf
parent=$(main)
systemctl restart dflock
active active && [ "$(main)" != "$parent" ] || fail "a restart has ended the keeper, since its configuration is missing"
goes_on root && goes_on user
cp "$work/good.conf" /etc/dflock.conf

# restart: another parent and another keeper, the same leases
parent=$(main)
systemctl restart dflock
[ "$(main)" != "$parent" ] || fail "not restarted"
goes_on root && goes_on user
[ "$(fence root)" = "$before" ] || fail "the lease is another one"

# the parent is killed, and stopped
for signal in KILL STOP; do
	parent=$(main)
	kill -$signal "$parent"
	await "systemd has started another one after SIG$signal" sh -c "[ \$(systemctl show -P MainPID dflock) != $parent ] && systemctl is-active dflock"
	goes_on root && goes_on user
done
await "the journal names the watchdog" sh -c 'journalctl -q --no-pager -u dflock | grep -i watchdog'

# upgrade
upgrade=$(main)
dpkg -i --force-confdef "$folder"/next/dflock_*.deb >"$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
[ "$(main)" != "$upgrade" ] && active active || fail "the upgrade has not replaced the keeper"
await "the keeper serves" serves
goes_on root && goes_on user
[ "$(fence root)" = "$before" ] || fail "the lease is another one after the upgrade"

# an outage: within the bounds of the unit the holders are frozen, and go on
kill -STOP $redis
state() { cut -d' ' -f3 "/proc/$1/stat"; }
frozen() { [ "$(state "$1")" = t ] || [ "$(state "$1")" = T ]; }
await "root's job is frozen" frozen "$pid_root"
await "the user's job is frozen" frozen "$pid_user"
kill -CONT $redis
thawed() { ! frozen "$1"; }
await "root's job goes on" thawed "$pid_root"
await "the user's job goes on" thawed "$pid_user"
goes_on root && goes_on user
if log | grep -iE "not permitted|cannot be stopped|no priority|locked into memory"; then fail "the unit takes something that the keeper needs"; fi

refused apt-get remove -y -qq dflock
active active && goes_on root && goes_on user || fail "the removal has ended something"
end_job root && end_job user
await "nobody has the lock" is_free root
apt-get purge -y -qq dflock >/dev/null
if pgrep -af 'dflockd.*/run/dflock'; then fail "a keeper is left"; fi
[ -z "$(traces)" ] || fail "purge leaves behind: $(traces)"
echo "with systemd $(systemctl --version | awk 'NR == 1 { print $2 }'): started, reloaded, restarted, watched, upgraded under held locks, purged"
