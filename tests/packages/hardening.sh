#!/usr/bin/env bash
# Which of systemd's restrictions the keeper bears, where systemd runs (boot.sh, after `booted.sh prepare`), as root. FOLDER has first/.
# Each is tried alone, on top of the unit as it is: what the keeper is for must still work, else the first thing that does not is printed.
# The table of docs/operating.md has what was found.
set -euo pipefail
cd "$(dirname "$0")"
. ./common.sh
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends "$1"/first/dflock_*.deb >/dev/null
begin
trap end EXIT
TRIES="
NoNewPrivileges=yes MemoryDenyWriteExecute=yes RestrictRealtime=yes PrivateTmp=yes PrivateDevices=yes PrivateMounts=yes
PrivateUsers=yes PrivateNetwork=yes PrivateIPC=yes ProtectSystem=strict ProtectHome=yes ProtectHostname=yes ProtectClock=yes
ProtectKernelTunables=yes ProtectKernelModules=yes ProtectKernelLogs=yes ProtectControlGroups=yes ProtectProc=invisible
ProcSubset=pid ReadOnlyPaths=/etc UMask=0077 RemoveIPC=yes KeyringMode=private RestrictAddressFamilies=~AF_NETLINK
SystemCallFilter=~ptrace SystemCallFilter=~pidfd_getfd SystemCallFilter=~@resources CapabilityBoundingSet=~CAP_SYS_PTRACE
CapabilityBoundingSet=~CAP_KILL CapabilityBoundingSet=~CAP_DAC_OVERRIDE CapabilityBoundingSet=~CAP_DAC_READ_SEARCH
CapabilityBoundingSet=~CAP_SETUID CapabilityBoundingSet=~CAP_SETGID CapabilityBoundingSet=~CAP_SYS_NICE
CapabilityBoundingSet=~CAP_IPC_LOCK LimitMEMLOCK=8M LimitNOFILE=1024 OOMScoreAdjust=0 DevicePolicy=strict
"

# The command of on_event: by a program that is setuid, as mail is sent.
cat >/usr/local/sbin/on-event <<'END'
#!/bin/sh
cat >>/var/tmp/events
exec su -s /bin/sh nobody -c 'id -un >>/var/tmp/events-user'
END
chmod 755 /usr/local/sbin/on-event
mkdir -p /home/alice/locks /tmp/locks /var/tmp/locks /srv/locks
mkdir -p -m 700 /home/bob
chown nobody /home/alice/locks /home/bob
chmod 1777 /tmp/locks /var/tmp/locks /srv/locks
mkdir -p -m 755 /home/bob/locks
chown nobody /home/bob/locks
cat >/etc/dflock.conf <<END
store = { server = "unix:$work/redis.sock"; password_file = "/etc/dflock.password"; };
lease = { ttl_ms = 4000; };
on_event = [ "/usr/local/sbin/on-event" ];
protect = ( { tree = "/srv/locks"; name = "locks"; }, { tree = "/home"; name = "home"; }, { tree = "/tmp/locks"; name = "tmp"; },
            { tree = "/var/tmp/locks"; name = "var"; }, { tree = "/dev/shm/locks"; name = "shm"; } );
END
sed -i 's/ttl_ms = 10000/ttl_ms = 4000/' "$work/other.conf"
mkdir -p -m 1777 /dev/shm/locks

AS_USER="setpriv --reuid=nobody --regid=nogroup --clear-groups" # words, not a function: $! is to be the job
state() { cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null || echo gone; }
stands() { case $(state "$1") in t | T) ;; *) return 1 ;; esac }
runs() { case $(state "$1") in t | T | gone | Z) return 1 ;; *) ;; esac }
soon() { # soon COMMAND...: within some seconds
	local deadline=$((SECONDS + 8))
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.1
	done
}
store_up() { dflock status --json | grep -q '"up": true'; }
holder() { # holder PATH [WORDS]: a job that holds the lock; its pid is in $pid
	local path=$1
	shift
	: >"$work/held"
	"$@" env LD_PRELOAD=libdflock.so bash -c 'exec 9>"$1" && flock -w 5 9 && echo held && exec sleep 1000' job "$path" >"$work/held" 2>"$work/said" &
	pid=$!
	soon grep -q held "$work/held"
}
is_shown() { dflock status | grep -q "held by pid $1"; }
clear_up() {
	kill -CONT "$redis"
	kill -9 $jobs 2>/dev/null || true
	for j in $jobs; do wait "$j" 2>/dev/null || true; done
	umount -l /srv/locks/later 2>/dev/null || true
	systemctl stop dflock 2>/dev/null || true
	systemctl reset-failed dflock 2>/dev/null || true
}
what_breaks() { # says what does not work, or nothing
	jobs=
	rm -f /var/tmp/events /var/tmp/events-user
	if ! timeout 30 systemctl restart dflock 2>/dev/null; then
		echo "does not start: $(journalctl -q --no-pager -o cat -u dflock -n 4 | grep -v systemd | grep . | head -n 1)"
		return
	fi
	soon store_up || { echo "does not reach the store: $(dflock status 2>&1 | grep -m 1 -i store)"; return; }
	mkdir -p /srv/locks/later
	mount -t tmpfs -o mode=1777 tmpfs /srv/locks/later
	holder /srv/locks/root || { echo "root gets no lock: $(cat "$work/said")"; jobs="$jobs $pid"; return; }
	root=$pid jobs="$jobs $pid"
	for path in /srv/locks/user /home/alice/locks/f /home/bob/locks/f /tmp/locks/f /var/tmp/locks/f /dev/shm/locks/f /srv/locks/later/f; do
		holder "$path" $AS_USER || { echo "a user gets no lock on $path: $(cat "$work/said")"; jobs="$jobs $pid"; return; }
		jobs="$jobs $pid"
	done
	holder /srv/locks/later/g || { echo "root gets no lock on a mount that came later: $(cat "$work/said")"; jobs="$jobs $pid"; return; }
	jobs="$jobs $pid"
	for j in $jobs; do soon is_shown "$j" || { echo "status does not find the holder $(tr '\0' ' ' </proc/$j/cmdline)"; return; }; done
	kill -STOP "$redis"
	for j in $jobs; do
		soon stands "$j" || { echo "a holder is not stopped during an outage, uid $(stat -c %u /proc/$j 2>/dev/null || echo "-, it was killed")"; return; }
	done
	kill -CONT "$redis"
	for j in $jobs; do soon runs "$j" || { echo "a holder does not go on after an outage"; return; }; done
	soon grep -q holders-thawed /var/tmp/events || { echo "on_event is not run"; return; }
	soon grep -q nobody /var/tmp/events-user || { echo "on_event cannot use a setuid program"; return; }
	dflock break --yes /srv/locks/user >/dev/null 2>"$work/said" || { echo "dflock break: $(cat "$work/said")"; return; }
	journalctl -q --no-pager -o cat "_SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID dflock)" |
		grep -m 1 -iE "not permitted|cannot be stopped|no priority|locked into memory|denied" || true
}
mkdir -p /run/systemd/system/dflock.service.d
try() { # try DIRECTIVE
	local said
	printf '[Service]\n%s\n' "$1" >/run/systemd/system/dflock.service.d/try.conf
	systemctl daemon-reload
	said=$(what_breaks; clear_up >/dev/null 2>&1)
	printf '%-45s %s\n' "${1:-the unit as it is}" "${said:-works}"
	found=${said:-works}
}
systemd-analyze security --no-pager dflock | tail -n 1
DFLOCK_CONFIG=/etc/dflock.conf try ""
[ "$found" = works ] || fail "the unit as it is: $found"
for directive in ${2:-$TRIES}; do
	try "$directive" </dev/null
done
echo "with systemd $(systemctl --version | awk 'NR == 1 { print $2 }')"
