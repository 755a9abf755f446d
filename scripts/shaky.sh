#!/usr/bin/env bash
# shaky.sh ROUNDS LOAD COMMAND...: runs COMMAND ROUNDS times while LOAD processes compute, four at a time, and says how often it failed.
# The output of each round that failed is kept in build/shaky.
set -uo pipefail
rounds=$1 load=$2
shift 2
kept=$PWD/build/shaky
rm -rf "$kept"
mkdir -p "$kept"
busy=()
trap 'kill "${busy[@]}" 2>/dev/null' EXIT
for ((i = 0; i < load; i++)); do
	(while :; do :; done) &
	busy+=($!)
done
export kept
seq "$rounds" | xargs -P 4 -I N sh -c '"$@" >"$kept/N" 2>&1 && rm "$kept/N" || echo "round N failed: $kept/N"' sh "$@"
failed=$(find "$kept" -type f | wc -l)
echo "$failed of $rounds rounds failed"
[ "$failed" = 0 ]
