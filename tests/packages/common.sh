# What the tests of the package share. Sourced; `set -euo pipefail` is on.
fail() { echo "FAILED: $*" >&2; exit 1; }
await() { # await WHAT COMMAND...: until it succeeds
	local what=$1 deadline=$((SECONDS + 60))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $deadline ] || fail "waited in vain: $what"
		sleep 0.1
	done
}
serves() { dflock status --json | grep -q '"pid"'; } # `dflock status` alone also succeeds if no keeper runs
refused() { # refused COMMAND...: it must fail; what it says is in $said
	if said=$("$@" 2>&1); then fail "not refused: $*"; fi
}

# A second host on this machine: a keeper of its own, and lock files of its own under the same names.
other() { DFLOCK_CONFIG=$work/other.conf DFLOCK_RUNTIME_DIR=$work/other "$@"; }
is_busy() { # is_busy NAME: a host has the lock, and it is not the other one
	local status=0
	other env LD_PRELOAD=libdflock.so flock -n -E 99 "$work/files/$1" true || status=$?
	[ $status = 99 ] || { [ $status = 0 ] || fail "the other host: flock ended with $status"; return 1; }
}
is_free() { ! is_busy "$1"; }

# A job that holds /srv/locks/NAME until a line comes, and then takes and frees another lock with the library that it has loaded.
job() { # job NAME [WORDS before it]
	local name=$1
	shift
	mkfifo -m 666 "$work/$name.in"
	: >"$work/$name.out"
	chmod 666 "$work/$name.out"
	"$@" env LD_PRELOAD=libdflock.so bash -c '
		exec 9>"/srv/locks/$1" 8>"/srv/locks/$1.second" && flock 9 && echo held >>"$2/$1.out"
		while read -r line <"$2/$1.in" && [ "$line" != end ]; do
			flock 8 && flock -u 8 && echo "$line" >>"$2/$1.out"
		done
		flock -u 9' job "$name" "$work" &
	eval "pid_$name=$!"
	await "$name has its lock" grep -qs held "$work/$name.out"
}
goes_on() { # goes_on NAME: the job lives, holds its lock, and may take another one
	local word="word-$RANDOM-$RANDOM"
	eval "kill -0 \$pid_$1" || fail "the job $1 has ended"
	is_busy "$1" || fail "the job $1 no longer excludes"
	echo "$word" >"$work/$1.in"
	await "$1 has taken another lock" grep -q "$word" "$work/$1.out"
}
end_job() { # end_job NAME
	echo end >"$work/$1.in"
	eval "wait \$pid_$1" || fail "the job $1 ended with $?"
	rm "$work/$1.in"
}
fence() { DFLOCK_CONFIG=/etc/dflock.conf dflock fence "/srv/locks/$1"; }

begin() { # a Redis with a password that root alone can read, and the other host
	work=$(mktemp -d /dev/shm/dflock-package-XXXXXX)
	chmod 755 "$work"
	mkdir -p "$work/files" "$work/other"
	chmod 700 "$work/other"
	mkdir -p -m 1777 /srv/locks
	printf 'port 0\nunixsocket %s/redis.sock\nunixsocketperm 777\nrequirepass secret\nsave ""\ndir %s\n' "$work" "$work" >"$work/redis.conf"
	redis-server "$work/redis.conf" >"$work/redis.log" 2>&1 &
	redis=$!
	await "the store" redis-cli -s "$work/redis.sock" ping
	(umask 077 && echo secret >/etc/dflock.password)
	cp -p /etc/dflock.password "$work/password"
	cat >"$work/other.conf" <<-END
	host = "other";
	store = { server = "unix:$work/redis.sock"; password_file = "$work/password"; };
	lease = { ttl_ms = 10000; };
	protect = ( { path = "$work/files/*"; name = "locks"; } );
	END
	cat >"$work/ours.conf" <<-END
	store = { server = "unix:$work/redis.sock"; password_file = "/etc/dflock.password"; };
	lease = { ttl_ms = 10000; };
	protect = ( { path = "/srv/locks/*"; name = "locks"; } );
	END
}
end() {
	kill $(jobs -p) 2>/dev/null || true
	other dflock stop >/dev/null 2>&1 || true
	rm -rf "$work" /srv/locks
}

# What the package put there, or made.
traces() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /root -o -path /usr/src/dflock -o -path /tmp -o -path /var/log -o -path /var/cache -o \
		-path /var/lib/apt -o -path /var/lib/dpkg \) -prune -o -name '*dflock*' -print
	find /run -name '*dflock*' 2>/dev/null || true
}
