#!/usr/bin/env bash
# Feeds generated input to every tests/fuzz/fuzz_*.c: scripts/fuzz.sh [SECONDS EACH [NAME...]]
# Seconds: the argument, else FUZZ_SECONDS, else 20. Inputs that fail are kept in build-fuzz/findings/.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-${FUZZ_SECONDS:-20}}
shift $(($# > 0))
CC=${FUZZ_CC:-clang}
build=build-fuzz
findings=$build/findings
sanitizers="address,undefined"
flags="-O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all"

if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
	echo "fuzz: \"$seconds\" is no number of seconds" >&2
	exit 2
fi
work=$(mktemp -d "${TMPDIR:-/dev/shm}/dflock-fuzz-XXXXXX")
trap 'rm -rf "$work"' EXIT

if ! command -v "$CC" >/dev/null; then
	echo "fuzz: $CC is missing: scripts/install-deps.sh, or set FUZZ_CC to a clang" >&2
	exit 1
fi
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9 ? 0 : 0; }' >"$work/try.c"
if ! "$CC" -fsanitize=fuzzer,$sanitizers -o "$work/try" "$work/try.c" 2>"$work/why"; then
	version=$("$CC" -dumpversion)
	echo "fuzz: $CC has no fuzzer runtime: install libclang-rt-${version%%.*}-dev" >&2
	head -3 "$work/why" >&2
	exit 1
fi

# The flags come from the environment: make adds its own to them.
CFLAGS="$flags -fsanitize=fuzzer-no-link,$sanitizers" make -s -j"$(nproc)" "CC=$CC" BUILD=$build $build/libcore.a
mkdir -p $findings

# What the parser in question already understands is a good start.
seeds() {
	case $1 in
	fuzz_config) cp config/dflock.conf "$2/" ;;
	esac
}

# Errors are returned one by one: where a function's result is looked at, set -e has no effect in it.
fuzz() {
	local name=$1 pkgs="libuv hiredis libconfig jansson openssl"
	local corpus=$work/$name.corpus

	mkdir "$corpus" "$work/$name.tmp" && seeds "$name" "$corpus" || return 1
	# shellcheck disable=SC2046,SC2086 # lists of flags
	"$CC" $flags -fsanitize=fuzzer,$sanitizers -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -D_GNU_SOURCE -I. \
		$(pkg-config --cflags $pkgs) -o "$build/$name" "tests/fuzz/$name.c" $build/libcore.a \
		$(pkg-config --libs $pkgs) -pthread || return 1
	if ! TMPDIR=$work/$name.tmp "$build/$name" -max_total_time="$seconds" -max_len=8192 -timeout=10 -verbosity=1 \
		-print_final_stats=1 -artifact_prefix="$findings/$name-" "$corpus" >"$work/$name.log" 2>&1; then
		tail -60 "$work/$name.log"
		echo "fuzz: $name failed; again with: $build/$name $findings/$name-..." >&2
		return 1
	fi
	awk -v name="$name" -v seconds="$seconds" '/ cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
		/number_of_executed_units/ { runs = $2 }
		END { printf "  %-16s %d runs in %d s, %d edges, no finding\n", name, runs, seconds, cov
		      exit runs < 100 }' "$work/$name.log" ||
		{ echo "fuzz: $name ran too few times to mean anything" >&2; return 1; }
}

# All at once: each has a processor for long enough where there are two.
failed=0 running=()
for source in tests/fuzz/fuzz_*.c; do
	name=$(basename "$source" .c)
	[[ $# -eq 0 || " $* " == *" $name "* ]] || continue
	fuzz "$name" &
	running+=($!)
done
for one in "${running[@]}"; do
	wait "$one" || failed=1
done
exit $failed
