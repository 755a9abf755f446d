#!/usr/bin/env bash
# Checks the models exhaustively with spin, and that each mutant, a model without one safeguard, is caught. A line each.
#   check.sh            what CI runs
#   check.sh long       larger bounds: much memory and time
#   check.sh show MODEL [progress] [-D...]   the shortest way to an error (progress: any), step by step
# JOBS: how many at once (2).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Expected, model, what is checked, and the variant.
short="
holds page safety
holds page safety -DRECORD
holds page safety -DPROGRAMS=1 -DCRASHES=1 -DRECORD
holds page safety -DPROGRAMS=1 -DCRASHES=1 -DBAD_TABLE
holds page safety -DEARLY
holds page safety -DPROGRAMS=1 -DCRASHES=1 -DEARLY
holds page progress -DPROGRAMS=1 -DLIVE
holds page progress -DPROGRAMS=1 -DLIVE -DEARLY
fails page safety -DEARLY -DNO_DISARM
fails page safety -DRECORD -DPROBE_FIRST
fails page safety -DRECORD -DNO_KEEPER_FENCE
fails page safety -DRECORD -DNO_SHIM_FENCE
fails page safety -DRECORD -DPAGE_FIRST
fails page safety -DRECORD -DNO_PINS
fails page safety -DPIN_PROBED
fails page safety -DLATE_COUNTS
fails page safety -DPROGRAMS=1 -DCRASHES=1 -DRECORD -DOLD_PINS
fails page safety -DPROGRAMS=1 -DCRASHES=1 -DBAD_TABLE -DOLD_WORDS
fails page safety -DPROGRAMS=1 -DCRASHES=1 -DBAD_TABLE -DOLD_PINS
fails page progress -DPROGRAMS=1 -DLIVE -DLOCK_FIRST
holds recall progress -DLOSSES=0
holds recall progress -DLOSSES=1
holds recall progress -DLOSSES=0 -DDIES
fails recall progress -DLOSSES=0 -DNO_TURN
fails recall progress -DLOSSES=1 -DNO_UNKNOWN
fails recall progress -DLOSSES=1 -DNO_REASK
fails recall progress -DLOSSES=1 -DNO_RECALL
fails recall progress -DLOSSES=0 -DDIES -DSTAYS
holds cluster safety -DLOSSES=1
holds cluster safety -DFLUSHES=1
holds cluster safety -DROLLS=1
holds cluster safety -DCRASHES=1
holds cluster safety -DSERVER_CLOCK
fails cluster safety -DSERVER_CLOCK -DSTEPS
fails cluster safety -DLOSSES=1 -DSEARCH_FIRST
fails cluster safety -DLOSSES=1 -DTOKEN_ONLY
fails cluster safety -DLOSSES=1 -DBEAT_UNNAMED
fails cluster safety -DLOSSES=1 -DDEADLINE_OF_ANSWER
fails cluster safety -DLOSSES=1 -DRENEW_FIRST
fails cluster safety -DLOSSES=1 -DSTALE_GRANT
fails cluster safety -DFLUSHES=1 -DNO_GRACE
fails cluster safety -DFLUSHES=1 -DOPEN_EARLY
fails cluster safety -DFLUSHES=1 -DFENCE_RESUMES
fails cluster safety -DFLUSHES=1 -DRECLAIM_LATE
fails cluster safety -DFLUSHES=1 -DFORGOTTEN_RENEWED
fails cluster safety -DROLLS=1 -DOLDER_WINS
fails cluster safety -DROLLS=1 -DCONFIRM_ANY
fails cluster safety -DCRASHES=1 -DTABLE_LATE
fails cluster safety -DCRASHES=1 -DTAKEN_UP_OPEN
holds shards safety -DTRIES=0 -DFORGETS=3
holds shards safety -DFORGETS=0
fails shards safety -DNO_READ
fails shards safety -DTRIES=0 -DFORGETS=3 -DNO_ASK
fails shards safety -DTRIES=0 -DFORGETS=2 -DOTHERS_ANY
fails shards safety -DFORGETS=0 -DOPENS_AT_ONCE
fails shards safety -DOTHER_FIRST
fails shards safety -DFORGETS=2 -DCALM -DANY_MEMORY
holds failover safety -DN=3
holds failover safety -DN=4
holds failover safety -DN=5
fails failover safety -DN=2 -DW=0
fails failover safety -DN=4 -DW=1
fails failover safety -DN=5 -DW=1
fails failover safety -DN=3 -DEARLY_GRACE
fails failover safety -DN=3 -DBACK
holds weak safety -DGIVE
holds weak safety -DOUTAGE
holds weak safety -DTEAR
fails weak safety -DGIVE -DNO_SHIM_FENCE
fails weak safety -DGIVE -DNO_LAST_FENCE
fails weak safety -DOUTAGE -DNO_SHIM_FENCE
fails weak safety -DOUTAGE -DSLOT_FIRST
fails weak safety -DOUTAGE -DRAISED_FIRST
fails weak safety -DOUTAGE -DNO_READ_FENCE
fails weak safety -DTEAR -DNO_BEGIN
fails weak safety -DTEAR -DNO_READ_FENCE
fails weak safety -DTEAR -DNO_ODD_FENCE
fails weak safety -DTEAR -DNO_RELEASE
holds table safety
fails table safety -DASK_LATE
fails table safety -DHELD_FIRST
fails table safety -DTELL_FIRST
fails table safety -DSHARE_LATE
fails table safety -DRETURN_LATE
fails table safety -DLOSE_BY_RETURN
fails table safety -DREOPENS
fails table safety -DREAD_ONCE
fails table safety -DNO_BUSY
holds net safety
holds net safety -DDEATHS=1 -DCRASHES=1
holds net safety -DOUTAGES=1
holds net safety -DPROCESS -DOUTAGES=1
holds net safety -DTHREADS=1 -DDEATHS=1 -DCRASHES=1 -DOUTAGES=1
holds net safety -DHOSTS=2 -DDEATHS=1 -DCRASHES=1
holds net safety -DHOSTS=2 -DOUTAGES=1
holds net safety -DLIVE -DDEATHS=1
holds net safety -DLIVE -DCRASHES=1
holds net safety -DLIVE -DTHREADS=1 -DDEATHS=1 -DCRASHES=1 -DOUTAGES=1
holds net safety -DLIVE -DHOSTS=2 -DOUTAGES=1
fails net safety -DPROBE_EARLY
fails net safety -DRUNS_IS_OUT
fails net safety -DHANDS_ARE_OUT
fails net safety -DSEEN_ANY
fails net safety -DLIVE -DNO_SEE_OUT
fails net safety -DTHREADS=1 -DCRASHES=1 -DENTER_LATE
fails net safety -DTHREADS=1 -DCRASHES=1 -DNOT_TAKEN_UP
fails net safety -DTHREADS=1 -DCRASHES=1 -DLIVE -DNO_REASK
fails net safety -DTHREADS=1 -DDEATHS=1 -DSECOND_CONTINUES
fails net safety -DTHREADS=1 -DDEATHS=1 -DSTALE_ENDS
fails net safety -DTHREADS=1 -DDEATHS=1 -DSAME_ENDS
fails net safety -DTHREADS=1 -DDEATHS=1 -DSTALE_ENTERS
fails net safety -DTHREADS=1 -DDEATHS=1 -DLIVE -DKEEPS_STALE
fails net safety -DTHREADS=1 -DDEATHS=1 -DLIVE -DKEEPS_ENTERED
fails net safety -DTHREADS=1 -DOUTAGES=1 -DLATE_CONTINUE
fails net safety -DTHREADS=1 -DOUTAGES=1 -DHOLDERS_ONLY
fails net safety -DTHREADS=1 -DOUTAGES=1 -DHOLDERS_FIRST
fails net safety -DTHREADS=1 -DOUTAGES=1 -DLOCK_FIRST
fails net safety -DTHREADS=1 -DOUTAGES=1 -DHELD_GOES
fails net safety -DTHREADS=1 -DOUTAGES=1 -DTHAW_FIRST
fails net safety -DPROCESS -DOUTAGES=1 -DEACH_THREAD
"
long="
holds net safety -DCRASHES=1 -DOUTAGES=1
holds net safety -DDEATHS=1 -DOUTAGES=1
holds net safety -DTHREADS=1 -DDEATHS=2 -DCRASHES=2 -DOUTAGES=2
holds net safety -DHOSTS=2 -DDEATHS=1 -DCRASHES=1 -DOUTAGES=1
holds net safety -DLIVE -DOUTAGES=1
holds net safety -DLIVE -DHOSTS=2 -DDEATHS=1 -DCRASHES=1
holds table safety -DCRASHES=2
holds table safety -DLEASES=1 -DCRASHES=3
holds page safety -DPROGRAMS=1 -DCRASHES=1
holds shards safety -DFORGETS=1
holds shards safety -DTRIES=0 -DFORGETS=4
holds page safety -DCRASHES=1
holds page safety -DCRASHES=1 -DRECORD
holds page safety -DCRASHES=1 -DBAD_TABLE
holds page safety -DPROGRAMS=1 -DCRASHES=2
holds page progress -DLIVE
holds recall progress -DLOSSES=2
holds recall progress -DLOSSES=1 -DDIES
holds failover safety -DN=2
fails failover safety -DN=3 -DW=0
fails failover safety -DN=2 -DEARLY_GRACE
fails failover safety -DN=5 -DEARLY_GRACE
holds cluster safety -DLOSSES=2
holds cluster safety -DFLUSHES=2
holds cluster safety -DCRASHES=2
holds cluster safety -DLOSSES=1 -DFLUSHES=1
holds cluster safety -DLOSSES=1 -DCRASHES=1
holds cluster safety -DFLUSHES=1 -DCRASHES=1
"

# Builds ./pan in the current folder. $1 model, $2 what is checked, then compiler flags of its own up to --, then -D of the model.
build() {
	local model=$1 what=$2 flags=()
	shift 2
	while [ "$1" != -- ]; do flags+=("$1"); shift; done
	shift
	cp "$here/$model.pml" .
	spin -a "$@" "$model.pml" >spin.out 2>&1 || { cat spin.out >&2; return 1; }
	if [ "$what" = progress ]; then flags+=(-DNP -DNFAIR=6); else flags+=(-DSAFETY -DNOREDUCE ${order:-}); fi
	gcc "-O${OPTIMIZE:-1}" -w "${flags[@]}" -DVECTORSZ=512 -o pan pan.c
}

# One line; 1 if it is not as expected.
check() {
	local expected=$1 model=$2 what=$3 dir began=$SECONDS run=() result states verdict
	shift 3
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' RETURN
	cd "$dir"
	[ "$what" = safety ] || run=(-l -f)
	# An error is found soon, and sooner with the processes in the other order; the rest runs as fast with -O1 as with -O2, which takes
	# longer to compile.
	local order=
	[ "$expected" = holds ] || { local -x OPTIMIZE=0; order=-DREVERSE; }
	if [ -n "${MODEL_LONG:-}" ]; then
		build "$model" "$what" -DCOLLAPSE -DMEMLIM=20000 -- "$@"
	else
		build "$model" "$what" -DMEMLIM=1900 -- "$@"
	fi || { echo "BROKEN  $model $*"; return 1; }
	./pan -n "${run[@]}" -m5000000 -w24 >pan.out 2>&1 || true
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
	if grep -q 'max search depth too small\|out of memory\|truncated\|error:' pan.out || [ -z "$states" ]; then
		result="not searched through"
	elif grep -q 'errors: 0$' pan.out; then
		result=holds
		! grep -q 'Search not completed' pan.out || result="not searched through"
	else
		result=fails
	fi
	cd /
	[ "$result" = "$expected" ] && verdict=ok || verdict=WRONG
	printf '%-5s %-8s %-9s %-50s %12s states %4d s: %s\n' "$verdict" "$model" "$what" "$*" "$states" $((SECONDS - began)) \
		"$result$(sed -n 's/^pan:1: \(.*\) (at depth.*/, \1/p' "$dir/pan.out" | cut -c1-60)"
	[ "$result" = "$expected" ]
}

show() {
	local model=$1 what=safety
	shift
	[ "${1:-}" != progress ] || { what=progress; shift; }
	cd "$(mktemp -d)"
	trap 'rm -rf "$PWD"' EXIT
	if [ "$what" = progress ]; then
		build "$model" progress -- "$@" && ./pan -l -f -n -m5000000 -w24
	else
		build "$model" safety -DBFS -- "$@" && ./pan -n -w24
	fi
	[ ! -e "$model.pml.trail" ] || spin -t -p "$@" "$model.pml" | grep -v 'goto)\|\[IF\]\|\[else\]\|sub-sequence'
}

case "${1:-}" in
show)
	shift
	show "$@"
	exit
	;;
one)
	shift
	check "$@"
	exit
	;;
long)
	export MODEL_LONG=1
	list=$long
	;;
'') list=$short ;;
*)
	echo "usage: $0 [long | show MODEL [progress] [-D...]]" >&2
	exit 2
	;;
esac
command -v spin >/dev/null || { echo "spin is missing: scripts/install-deps.sh test" >&2; exit 1; }
# The long ones first, so that both processors are busy to the end.
if echo "$list" | sed '/^$/d' | sort -r -s -k1,1 | tr '\n' '\0' |
	xargs -0 -P "${JOBS:-2}" -I{} bash -c '"$0" one $1' "$0" {}; then
	echo "the models hold, and every mutant is caught"
else
	echo "a model does not hold, or a mutant is not caught: see WRONG above; $0 show MODEL -D... shows how" >&2
	exit 1
fi
