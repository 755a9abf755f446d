#!/usr/bin/env bash
# What the documentation and the sources must agree on. Says all that is wrong, and ends with 1 if anything is.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${DFLOCK_BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() { echo "check-docs: $*" >&2; failed=1; }
lines() { printf '%s\n' $1 | sort -u; }

# same WHERE "A..." ELSEWHERE "B...": both lists have the same words.
same() {
	local word
	for word in $(comm -23 <(lines "$2") <(lines "$4")); do wrong "$word: in $1, but not in $3"; done
	for word in $(comm -13 <(lines "$2") <(lines "$4")); do wrong "$word: in $3, but not in $1"; done
}

# Settings: the tables in config/, the example (but for the names of its stores), the manual page.
settings=$(sed -n 's/^\t{"\([a-z_]*\)", SETTING_.*/\1/p' config/*.c)
[ -n "$settings" ] || wrong "config/*.c: no table of settings was found"
same "config/*.c" "$settings" config/dflock.conf \
	"$(sed 's|^// \t[a-z]* = {||' config/dflock.conf | grep -oE '\b[a-z_]+ = ' | sed 's/ = //')"
same "config/*.c" "$settings" man/dflock.conf.5 \
	"$(sed -n 's/^\.It Va \([a-z_]*\) No = .*/\1/p; s/^\.Ss \(Group\|List\) //p' man/dflock.conf.5)"

# Examples of configurations are valid. Passwords, certificates and commands in them are in files that are not there.
accepted() { # accepted FILE NAME
	sed -i 's/\(password_file\|tls_[a-z_]*\) *= "[^"]*";//; s/rediss:/redis:/; s/on_event = [[(][^])]*[])];//' "$1"
	local said
	said=$("$build/dflock" check --config "$1" 2>&1) || wrong "$2: an example is not accepted: $said"
}
cp config/dflock.conf "$work/example"
accepted "$work/example" config/dflock.conf
documents=$(find . -name '*.md' -not -path './build*' -not -path './.*' -printf '%P\n' | sort)
for page in man/dflock.conf.5 $documents; do
	rm -f "$work"/block-*
	awk -v out="$work/block-" '/^(```|\.Ed)$/ { on = 0 } on { print >(out on) } /^(```conf|\.Bd -literal)$/ { on = ++n }' "$page"
	for block in "$work"/block-*; do [ ! -e "$block" ] || accepted "$block" "$page"; done
done

# Commands and options: --help and the manual pages, and the completion.
options() { # options COMMAND...: "-c" or "--config" for each that its --help lists
	"$@" --help | sed -n 's/^ *\(-[a-zA-Z?], \)\?\(--[a-z-]*\).*/\1\2/p' | tr -d ' ' | tr ',' '\n' |
		grep -vxE -- '-\?|--help|--usage|-V|--version' || true
}
in_page() { # in_page < PART OF A PAGE
	grep -oE '\bFl [a-zA-Z-]+' | sed 's/Fl /-/' | grep -vxE -- '--|--help|--usage|--version' || true
}
commands=$("$build/dflock" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
same "dflock --help" "$commands" man/dflock.1 "$(sed -n 's/^\.Ss dflock //p' man/dflock.1)"
for command in $commands; do
	part=$(awk -v name="$command" '/^\.S[hs]/ { on = $0 == ".Ss dflock " name } on' man/dflock.1)
	same "dflock $command --help" "$(options "$build/dflock" "$command")" "man/dflock.1 ($command)" "$(in_page <<<"$part")"
	for word in $command $(options "$build/dflock" "$command" | grep -e --); do
		for file in packaging/bash-completion/dflock packaging/zsh-completion/_dflock; do
			grep -qw -e "$word" $file || wrong "$word: not in $file"
		done
	done
done
for word in help usage version; do
	grep -qE "Fl -$word\b" man/dflock.1 || wrong "--$word: not in man/dflock.1"
done
same "dflockd --help" "$(options "$build/dflockd")" man/dflockd.8 "$(in_page <man/dflockd.8)"
for word in $(grep -rhoE '`dflock [a-z-]+' --include='*.[ch]' --include='*.md' --include='*.conf' . | sed 's/.* //' | sort -u); do
	grep -qx "$word" <<<"$commands" || wrong "\`dflock $word': there is no such command"
done

# Names of log lines: the table of the keeper, and the manual page. Each line that is not for debugging has one.
names() { grep -oE "X\($1_[A-Z_]+, \"[a-z-]+\"" keeper/log.h | sed 's/.*"\(.*\)"/\1/'; }
listed() { sed -n "/^\.Sh $1/,/^\.Sh/s/^\.It \([a-z-]*-[a-z-]*\|deadlock\)$/\1/p" man/dflockd.8; }
same keeper/log.h "$(names EVENT)" "man/dflockd.8 (EVENTS)" "$(listed EVENTS)"
same keeper/log.h "$(names LINE)" "man/dflockd.8 (LOG)" "$(listed LOG)"
for name in $(names LINE) $(names EVENT); do
	kind=$(tr 'a-z-' 'A-Z_' <<<"$name")
	grep -rqE "\b(EVENT|LINE)_$kind\b" --include='*.c' --exclude='logcause.c' keeper || wrong "$name: no line of the keeper has this name"
done
for name in $(sed -n '/^## Logs/,/^## /s/^| \(`.*`\) |.*/\1/p' docs/operating.md | tr -d '`,'); do
	grep -qx -- "$name" <<<"$(names LINE; names EVENT)" || wrong "docs/operating.md: no line has the name $name"
done
# Metrics: the table in cli/, the table for operators; alerts name no others.
metrics=$(sed -n 's/^\t{"\([a-z_]*\)",.*/dflock_\1/p' cli/metrics.c)
[ -n "$metrics" ] || wrong "cli/metrics.c: no metrics were found"
same cli/metrics.c "$metrics" docs/operating.md "$(sed -n 's/^| `\(dflock_[a-z_]*\)`.*/\1/p' docs/operating.md)"
for word in $(grep -oE 'dflock_[a-z_]+' packaging/prometheus/dflock.rules.yml | sed -E 's/_(bucket|sum|count)$//' | sort -u); do
	grep -qx "$word" <<<"$metrics" || wrong "packaging/prometheus/dflock.rules.yml: there is no metric $word"
done

# pytest collects one of two test files that have one name.
for word in $(find tests -name 'test_*.py' -printf '%f\n' | sort | uniq -d); do wrong "$word: two files below tests/ have this name"; done

# Manual pages.
mandoc -Tlint -Wwarning man/*.[1-8] >"$work/lint" || wrong "mandoc -Tlint: $(cat "$work/lint")"

# Each row of a table has as many cells as its head: GitHub drops what is more. A | within `...` also ends a cell.
cells='/^```/ { code = !code } /^\|/ && !code { row = $0; gsub(/\\\|/, "", row); n = gsub(/\|/, "|", row)
	if (!head) head = n; else if (n != head) print FILENAME ":" FNR ": this row has " n - 1 " cells, and the table has " head - 1; next } { head = 0 }'
while IFS= read -r line; do wrong "$line"; done < <(for page in $documents; do awk "$cells" "$page"; done)

# What documents refer to is there.
for page in $documents; do
	for path in $(grep -oE '\]\([^)#]+' "$page" | sed 's/](//' | grep -v '://' || true); do
		[ -e "$(dirname "$page")/$path" ] || wrong "$page: $path does not exist"
	done
	for path in $(grep -oE '(^|[^A-Za-z0-9_./-])[a-z.]+/[A-Za-z0-9_./*-]*' "$page" | grep -oE '[a-z.]+/[A-Za-z0-9_./*-]*' |
		sed 's/\.$//' | sort -u); do
		[ -d "${path%%/*}" ] || continue
		# A path may also be meant from the document's own folder.
		compgen -G "$path" >"$work/found" || compgen -G "$(dirname "$page")/$path" >"$work/found" ||
			case $path in build*) ;; *) wrong "$page: $path does not exist" ;; esac
	done
	for name in $(grep -oE '`[a-z_*-]+\.(c|h|lua|sh|py|map|conf|service)`' "$page" | tr -d '`' | sort -u); do
		[ -n "$(find . -name "$name" -not -path './build*' -print -quit)" ] || wrong "$page: there is no $name"
	done
	for name in $(grep -oE '(^    |`|^sudo )make [a-z-]+' "$page" | sed 's/.*make //' | sort -u); do
		grep -qE "^([a-z-]+ )*$name( [a-z-]+)*:" Makefile || wrong "$page: there is no target $name"
	done
done
# Functions that a document names with their file are defined there: `keeper/leases/act.c`: `lease_recall()`.
for page in $documents; do
	while read -r file name; do
		grep -qsE "^[A-Za-z_].*[ *]$name\\([^;]*\$" "$file" || grep -qsF "function $name(" "$file" ||
			wrong "$page: $file does not define $name()"
	done < <(tr '\n' ' ' <"$page" | grep -oE '`[a-z/_]+\.(c|lua)`: *`[a-z_]+\(\)`' | tr -d '`:()' | sort -u)
done
# Tests that are named as what shows a promise are there; each promise has one.
for name in $(grep -ohE '`tests/[^` ]+::[a-z0-9_]+`' $documents | tr -d '`' | sort -u); do
	file=${name%%::*}
	grep -qsE "^(def ${name##*::}\(|TEST(_EACH)?\(${name##*::}[,)])" "$file" || wrong "there is no test $name"
done
while IFS= read -r line; do
	wrong "docs/guarantees.md: no test shows that: $line"
done < <(sed -n '/^## With/,/^## What must/{/^| promise/d; /^|--/d; /^|/p}' docs/guarantees.md | grep -v '::' || true)
for page in $documents man/*.[1-8]; do
	for name in $(grep -oP '\b[a-z]+_ms\b(?!:n)' "$page" | sort -u); do # :n: a field of docs/state.md
		grep -qx "$name" <<<"$settings" || wrong "$page: there is no setting $name"
	done
done

# Messages that are explained are said: each part between dots is in a string of the sources.
perl -0pe 's/"\s*\n\s*"//g; s/\\"/"/g' $(find shim keeper store tls config procfs wire cli net -name '*.c') >"$work/strings"
sed -n 's/^| `\([^|]*\)` |.*/\1/p' docs/troubleshooting.md | sed 's/` *<br> *`/\n/g' >"$work/messages"
[ -s "$work/messages" ] || wrong "docs/troubleshooting.md: no messages were found"
while IFS= read -r message; do
	while IFS= read -r part; do
		grep -qF -e "$part" "$work/strings" || wrong "docs/troubleshooting.md: \"$part\" is not in the sources"
	done < <(sed 's/ *\.\.\. */\n/g' <<<"$message" | grep .)
done <"$work/messages"

# The newest entries are about this version.
[ "$(sed -n '1s/^dflock (\([^)]*\)).*/\1/p' debian/changelog)" = "$(cat VERSION)" ] || wrong "debian/changelog: the first entry is not $(cat VERSION)"
grep -m 1 '^## ' CHANGELOG.md | grep -qF "$(cat VERSION)" || wrong "CHANGELOG.md: the first entry is not $(cat VERSION)"

# The shim shows programs the listed names and no others.
exported=$(nm -D --defined-only "$build/libdflock.so" | awk '{ sub(/@.*/, "", $3); print $3 }')
[ $((16#$(od -An -j4 -N1 -tx1 "$build/libdflock.so" | tr -d ' '))) = 1 ] || exported+=" __fcntl_time64" # 32 bits only
same "libdflock.so" "$exported" shim/exports.map "$(sed -n '/^global:/,/^local:/s/^\t\(.*\);/\1/p' shim/exports.map)"
# And needs nothing that musl lacks (shim/oldlibc.h), where musl-gcc is installed.
for musl in /lib/ld-musl-*.so.1; do
	[ -e "$musl" ] || continue
	lacks=$(comm -23 <(nm -D --undefined-only "$build/libdflock.so" | awk '$1 == "U" { sub(/@.*/, "", $2); print $2 }' | sort) \
		<(nm -D --defined-only "$musl" | awk '{ print $3 }' | sort))
	[ -z "$lacks" ] || wrong "libdflock.so needs what musl lacks: $lacks"
done

[ "$failed" = 0 ] && echo "documentation and sources agree"
exit "$failed"
