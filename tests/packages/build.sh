#!/usr/bin/env bash
# Builds the package in an empty system (scripts/fresh.sh), as root: twice, which must give the same files, and once more as the next
# version. lintian has nothing to say.
#
#     build.sh FOLDER [package|hardening]     hardening: once, and nothing is judged
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$1
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends build-essential debhelper git lintian >/dev/null
git config --global --add safe.directory "$PWD"
# What the package says that it needs, and nothing else.
mkdir -p "$folder"
apt-get build-dep -y -qq --no-install-recommends "$PWD" >/dev/null

version=$(cat VERSION)
scripts/deb.sh "$folder/first"
[ "${2:-package}" = package ] || exit 0
TMPDIR=$(mktemp -d) scripts/deb.sh "$folder/again" >/dev/null
for file in "$folder"/first/*.deb; do
	cmp "$file" "$folder/again/${file##*/}" || { echo "two builds differ" >&2; exit 1; }
done
rm -r "$folder/again"
scripts/deb.sh "$folder/next" "$version+1"
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$folder"/first/*.changes
echo "built twice alike, and nothing for lintian to say"
