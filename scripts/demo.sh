#!/usr/bin/env bash
# dflock in under a minute, with real programs only (bash, flock(1)) and a private redis-server that is gone afterwards.
#
# A "host" here is a keeper with a runtime directory and lock files of its own: other inodes than those of the
# other hosts, so that the kernel excludes nobody and what is excluded is excluded by dflock.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-deps.sh demo
[ -e build/dflock ] || echo "building dflock, once: a minute on a small machine"
make -s -j"$(nproc)" all
build=$PWD/build
work=$(mktemp -d /dev/shm/dflock-demo-XXXXXX)
redis=
finish() {
	# If something failed, programs may still hold or await locks, and keepers do not stop for that.
	local left h
	left="$(jobs -p | grep -vx "$redis" || true) $(cat "$work/holder" 2>/dev/null || true)"
	kill -9 $left 2>/dev/null || true
	for h in a b c d; do
		[ ! -e "$work/$h/keeper.lock" ] || on "$h" "$build/dflock" stop >/dev/null 2>&1 || end_keeper "$h"
	done
	[ -z "$redis" ] || kill "$redis" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$work"
}
end_keeper() { # whoever has keeper.lock
	local pid
	pid=$(awk -v inode=":$(stat -c %i "$work/$1/keeper.lock")$" '$6 ~ inode { print $5 }' /proc/locks)
	while kill $pid 2>/dev/null; do sleep 0.2; done # told again, it does not wait for locks to end
}
trap finish EXIT
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# on HOST COMMAND...: as on that host, without the shim; under HOST COMMAND...: with it. In the background the command
# is the job itself (exec).
on() { local h=$1; shift; ${background:+exec} env DFLOCK_CONFIG="$work/$h/dflock.conf" DFLOCK_RUNTIME_DIR="$work/$h" "$@"; }
under() { local h=$1; shift; on "$h" "$build/dflock" run -- "$@"; }

redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --dir "$work" --daemonize no >"$work/redis.log" 2>&1 &
redis=$!
until redis-cli -s "$work/redis.sock" ping >/dev/null 2>&1; do :; done
for h in a b c d; do
	mkdir -m 700 "$work/$h"
	mkdir "$work/$h/lock"
	cat >"$work/$h/dflock.conf" <<-EOF
	host = "$h";
	store = { server = "unix:$work/redis.sock"; };
	protect = ( { path = "$work/$h/lock/nightly.lock"; name = "nightly"; },
	            { path = "$work/$h/lock/counter.lock"; name = "counter"; } );
	EOF
done
on a "$build/dflock" init

pids=()
say "1. The nightly job starts on two hosts at once: ( flock -n 9 || exit 1; job ) 9>nightly.lock"
cat >"$work/nightly.sh" <<'EOF'
host=$1 folder=$2
( flock -n 9 || { echo "   host $host: somebody else runs it, nothing to do"; echo $host >>"$folder/tried"; exit 1; }
  echo "   host $host: runs the job"
  echo $host | tee -a "$folder/ran" >>"$folder/tried"
  # The job takes as long as it takes until both hosts have tried.
  until [ "$(wc -l <"$folder/tried")" = 2 ]; do sleep 0.02; done ) 9>"$folder/$host/lock/nightly.lock"
EOF
: >"$work/tried"
for h in a b; do background=1 under $h bash "$work/nightly.sh" $h "$work" & pids+=($!); done
for p in "${pids[@]}"; do wait "$p" || true; done
[ "$(wc -l <"$work/ran")" = 1 ] || { echo "   FAILED: the job ran on $(wc -l <"$work/ran") hosts"; exit 1; }

rounds=25
count() { # count HOW: four hosts, two processes each, add one to a number in a file, under flock(1)
	echo 0 >"$work/number"
	local pids=() h p
	for h in a b c d; do for p in 1 2; do
		background=1 "$1" $h bash -c 'for ((i = 0; i < $2; i++)); do
			flock "$1/lock/counter.lock" sh -c "n=\$(cat $1/../number); echo \$((n + 1)) >$1/../number"
		done' count "$work/$h" $rounds & pids+=($!)
	done; done
	wait "${pids[@]}"
	cat "$work/number"
}
say "2. Eight processes on four hosts add one to a number in a file, $rounds times each, under flock(1)"
plain=$(count on)
echo "   without dflock: $plain of $((8 * rounds)): $((8 * rounds - plain)) updates lost"
with=$(count under)
echo "   with dflock:    $with of $((8 * rounds)): $((8 * rounds - with)) updates lost"
[ "$with" = $((8 * rounds)) ] || { echo "   FAILED"; exit 1; }
[ "$plain" != $((8 * rounds)) ] || echo "   (no update was lost without dflock this time: a lucky run)"

say "3. kill -9 of a process that holds the lock, with another host waiting for it"
background=1 under a flock "$work/a/lock/nightly.lock" sh -c 'echo $$ >'"$work"'/holder; exec sleep 1000' &
disown # so that nobody is told that it was killed
until [ -s "$work/holder" ]; do :; done
background=1 under b bash -c 'exec 9>"$1/b/lock/nightly.lock"; flock 9; echo "$EPOCHREALTIME" >"$1/got"' waiter "$work" &
waiter=$!
until on a "$build/dflock" status --json | grep -q '"note": "wanted by another host"'; do :; done
on a "$build/dflock" status | sed 's/^/   | /'
# flock(1) keeps a copy of the descriptor, so both have to go, as in a crash.
pids="$(cat "$work/holder") $(ps -o ppid= -p "$(cat "$work/holder")")"
killed=$EPOCHREALTIME
kill -9 $pids
wait $waiter
rm "$work/holder"
awk -v a="$killed" -v b="$(cat "$work/got")" 'BEGIN { printf "   host b had the lock %.1f ms later (the time to live is 30,000 ms)\n", (b - a) * 1000 }'
say "Everything is stopped and removed again."
