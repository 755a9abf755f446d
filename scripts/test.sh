#!/usr/bin/env bash
# Every test, on a bare Debian 12 or 13: installs what is missing, builds with gcc and clang, runs. `make help` names the parts.
#
#     scripts/test.sh          everything, as CI does: twenty minutes on two processors
#     scripts/test.sh quick    what to run before a commit: a few minutes
#
# A run goes on to its end, whatever fails, and then says what failed and how to run that alone. Only a build that fails ends it, and
# time: what is not over after DFLOCK_TEST_MINUTES (75) is ended, and the summary says which stage that was.
set -uo pipefail
cd "$(dirname "$0")/.."
[ -n "${DFLOCK_READY:-}" ] || exec scripts/ready.sh "$PWD/scripts/test.sh" "$@"
case "${1:-all}" in
all | quick) ;;
*) echo "usage: $0 [quick]" >&2; exit 2 ;;
esac
scripts/install-deps.sh test || exit
logs=$PWD/build/logs
rm -rf "$logs"
mkdir -p "$logs"
# Where no registry of npm is reached, tests/clients skips what needs these, and says so.
scripts/install-clients.sh >"$logs/clients" 2>&1 ||
	echo "the libraries of node cannot be had ($(grep -m 1 -o 'code E[A-Z_]*' "$logs/clients" || echo "see build/logs/clients")): tests/clients skips what needs them"

names=() times=() results=()
stage() { # stage NAME WHAT COMMAND...: shows and keeps what COMMAND prints
	local name=$1 began=$SECONDS
	local left=$((${DFLOCK_TEST_MINUTES:-75} * 60 - SECONDS)) status
	printf '\n== %s: %s (after %d min %02d s)\n' "$name" "$2" $((SECONDS / 60)) $((SECONDS % 60))
	shift 2
	timeout -k 20 $((left > 1 ? left : 1)) "$@" 2>&1 </dev/null | tee "$logs/$name"
	status=${PIPESTATUS[0]}
	case $status in
	0) results+=(ok) ;;
	124 | 137) results+=("ENDED: no time was left") ;;
	*) results+=(FAILED) ;;
	esac
	names+=("$name")
	times+=($((SECONDS - began)))
	[ "${results[-1]}" = ok ]
}

# What pytest and Check count, in all logs.
counted() {
	cat "${names[@]/#/$logs/}" | awk '
		/^100%: Checks:|^[0-9]+%: Checks:/ { split($0, n, /[:,]/); passed += n[3] - n[5] - n[7]; failed += n[5] + n[7] }
		/ in [0-9.]+s( \([0-9:]+\))?( =+)?$/ {
			for (i = 1; i < NF; i++) {
				if ($(i + 1) ~ /^passed/) passed += $i
				if ($(i + 1) ~ /^(failed|errors?),?$/) failed += $i
				if ($(i + 1) ~ /^skipped/) skipped += $i
			}
		}
		END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }'
}

summary() {
	local status=0 i
	printf '\n== summary\n'
	for i in "${!names[@]}"; do
		printf '%-20s %3d min %02d s  %s\n' "${names[i]}" $((times[i] / 60)) $((times[i] % 60)) "${results[i]}"
		[ "${results[i]}" = ok ] || status=1
	done
	printf '%-20s %3d min %02d s\n' all $((SECONDS / 60)) $((SECONDS % 60))
	awk '/^SKIPPED \[/ { sub(/^SKIPPED \[[0-9]*\] /, ""); skipped[$0] }
		/^(FAILED|ERROR) / { sub(/^[A-Z]* /, ""); sub(/ - .*/, ""); failed[$0] }
		END {
			for (s in skipped) print "skipped: " s
			for (t in failed) print "failed: make check T=\047\"" t "\"\047"
		}' "${names[@]/#/$logs/}" | sort
	# A suite of make that failed.
	sed -n 's/^make.*\[Makefile:[0-9]*: \([^]]*\)\] Error.*/failed: make \1/p' "${names[@]/#/$logs/}" | sort -u
	echo "logs: $logs"
	counted
	return $status
}

# Suites wait for processes and times, too.
suites=$((2 * $(nproc)))
build=(make -s -j"$(nproc)" all agents)
stage build "gcc" "${build[@]}" || { summary; exit 1; }
if [ "${1:-all}" = quick ]; then
	stage unit "the unit tests" make -k -s -j$suites unit
	stage docs "what the documentation and the sources must agree on" make -s check-docs
	stage simulator "several hosts in one process" make -s sim SIM_SECONDS=15
	stage processes "some of the tests with processes" make -s check-quick
	stage demo "the demo" scripts/demo.sh
	summary
	exit
fi
stage build-clang "clang" "${build[@]}" CC=clang BUILD=build-clang || { summary; exit 1; }
stage build-san "sanitizers" "${build[@]}" SAN=1 BUILD=build-san || { summary; exit 1; }
stage sanitized "unit tests under the address and undefined-behaviour sanitizers" make -k -s -j$suites SAN=1 BUILD=build-san unit
stage docs "what the documentation and the sources must agree on" make -s check-docs
# They only compute, for minutes: all stages from here on leave them what they do not use of the processors, and are not delayed by them.
NICE="chrt -i 0" timeout -k 20 $((${DFLOCK_TEST_MINUTES:-75} * 60)) make -s model-check >"$logs/models-beside" 2>&1 </dev/null &
models=$!
trap 'kill $models 2>/dev/null' EXIT
stage processes "tests with processes, several at a time" make -k -s check-beside
stage variants "some of them with programs of musl, with PostgreSQL, with ZooKeeper, and with sanitized programs" make -k -s -j2 check-some
stage punctual "tests of being in time" make -s check-punctual
# One at a time.
stage alone "tests that need the machine for themselves; beside them several hosts in one process, and what is read from outside" \
	make -k -s -j3 check-alone sim fuzz NICE="chrt -i 0"
stage faults "fault runs in networks of their own" make -s check-faults
stage demo "the demo" scripts/demo.sh
stage models "the models with their mutants, which began with the tests with processes" tail -n +1 -f --pid=$models "$logs/models-beside"
wait $models || results[-1]=FAILED
summary
