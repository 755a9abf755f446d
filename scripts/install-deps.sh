#!/bin/sh
# Installs what is missing of the packages that building needs (no argument), with `test` what the tests need too, and with
# `bench` what measuring and drawing need.
set -eu
build="gcc make pkg-config libc6-dev libuv1-dev libhiredis-dev libconfig-dev libssl-dev libjansson-dev libncurses-dev uthash-dev"
demo="redis-server util-linux procps"
test="clang check libsubunit-dev liblua5.4-dev libpq-dev postgresql libzookeeper-st-dev zookeeper pgbouncer python3 python3-pytest python3-pytest-xdist perl php-cli ruby dash bash valgrind strace bindfs btrfs-progs e2fsprogs fuse3 fakeroot busybox mandoc
      mount iproute2 sudo psmisc gdb sqlite3 gdbmtool tdb-tools python3-tdb libfile-fcntllock-perl python3-fasteners python3-filelock
      python3-portalocker python3-zc.lockfile python3-yaml python3-pyte openssl logrotate spin musl-tools libcap2-bin binutils curl jq"
# For promtool: the only check of names, units and alert rules by the conventions of Prometheus. 115 MB; its service is not started.
test="$test prometheus"
# tests/clients locks with redis-py and with libraries of node (scripts/install-clients.sh).
test="$test python3-redis"
# Programs that tests/programs tries: without one of them, its tests are skipped. Not dovecot-core and etcd-server, which are servers,
# and not golang-go, which is large.
tried="chromium rustc moreutils daemontools runit chiark-utils-bin subversion certbot cron parallel task-spooler hugo rclone syncthing"
case "${1:-build}" in
build) want=$build ;;
demo) want="$build $demo" ;;
test) want="$build $demo $test $tried" ;;
bench) want="$build $demo gnuplot-nox linux-perf" ;;
*) echo "usage: $0 [build|demo|test|bench]" >&2; exit 2 ;;
esac
missing=
for package in $want; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
# Node and npm may have come from elsewhere, and then exclude Debian's packages.
if [ "${1:-}" = test ] && ! command -v npm >/dev/null; then
	missing="$missing nodejs npm"
fi
# The sanitizers' runtime has clang's version in its name.
if [ "${1:-}" = test ] && ! dpkg-query -W -f '${Status}\n' 'libclang-rt-*-dev' 2>/dev/null | grep -q 'ok installed'; then
	missing="$missing clang-rt"
fi
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ]; then
	# With a terminal, sudo may ask for the password.
	if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
		echo "missing packages:$missing: installing them with sudo"
		exec sudo "$0" "$@"
	fi
	echo "missing packages:$missing: install them as root: $0 ${1:-build}" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing:$missing"
# A mirror that does not answer is named within seconds.
apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=8 -o Acquire::https::Timeout=8 update -qq
for package in $tried; do
	case " $missing " in *" $package "*) ;; *) continue ;; esac
	apt-cache show "$package" >/dev/null 2>&1 && continue
	echo "not in this version of Debian: $package; its tests are skipped"
	missing=$(echo "$missing " | sed "s/ $package / /")
done
# A redis-server package starts a service; what we run is our own, on sockets of our own.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d.dflock
chmod +x /usr/sbin/policy-rc.d.dflock
[ -e /usr/sbin/policy-rc.d ] || { mv /usr/sbin/policy-rc.d.dflock /usr/sbin/policy-rc.d; ours=1; }
trap 'rm -f /usr/sbin/policy-rc.d.dflock; [ -z "${ours:-}" ] || rm -f /usr/sbin/policy-rc.d' EXIT
case "$missing" in
*clang-rt*)
	missing=$(echo "$missing" | sed 's/clang-rt//')
	[ -z "$missing" ] || apt-get install -y -qq --no-install-recommends $missing >/dev/null
	version=$(clang --version | sed -n 's/.*clang version \([0-9]*\).*/\1/p')
	missing="libclang-rt-$version-dev"
	;;
esac
apt-get install -y -qq --no-install-recommends $missing >/dev/null
