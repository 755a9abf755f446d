# dflock. `make help` lists the targets; variables: CC, AR, PKG_CONFIG, BUILD (output folder), SAN=1 (sanitizers), PREFIX, LIBDIR, DESTDIR.
BUILD   ?= build
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
ZSHDIR  ?= $(PREFIX)/share/zsh/site-functions
CC      ?= cc
PKG_CONFIG ?= pkg-config
VERSION := $(shell cat VERSION)
PKGS    := libuv hiredis libconfig jansson openssl

CPPFLAGS += -I. -D_GNU_SOURCE -DDFLOCK_VERSION='"$(VERSION)"' -DDFLOCKD_INSTALLED='"$(PREFIX)/sbin/dflockd"' \
            -DDOCTOR_INSTALLED='"$(PREFIX)/libexec/dflock-doctor"' -DNET_INSTALLED='"$(PREFIX)/libexec/dflock-net"' \
            -DENGINES_INSTALLED='"$(PREFIX)/libexec"' -DSHIM_INSTALLED='"$(LIBDIR)/libdflock.so"'
# With sanitizers gcc warns of what cannot be.
WARN    := $(if $(SAN),,-Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2)
CFLAGS  ?= $(if $(SAN),-O1,-O2) -g
CFLAGS  += -std=gnu11 $(WARN) -fno-strict-aliasing
# Debian's headers are not ours to warn about.
PKG_CFLAGS := $(subst -I,-isystem ,$(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null))
CHECK_CFLAGS := $(shell $(PKG_CONFIG) --cflags check 2>/dev/null)
CHECK_LIBS := $(shell $(PKG_CONFIG) --libs check 2>/dev/null)
LIBS    := $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null) -pthread
TOP_LIBS := $(shell $(PKG_CONFIG) --libs ncursesw 2>/dev/null)
CLI_LIBS := $(shell $(PKG_CONFIG) --libs libconfig jansson 2>/dev/null)
ifdef SAN
CFLAGS  += -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SAN_OBJ := $(BUILD)/tests/san/options.o
$(shell mkdir -p -m 1777 $(BUILD)/reports)
$(SAN_OBJ): CPPFLAGS += -DSAN_REPORTS='"$(abspath $(BUILD))/reports"'
endif

CORE_SRC := $(wildcard wire/*.c procfs/*.c config/*.c tls/*.c store/*.c store/redis/*.c) $(filter-out keeper/main.c,$(wildcard keeper/*.c keeper/*/*.c))
CORE_OBJ := $(CORE_SRC:%.c=$(BUILD)/%.o)
CORE     := $(BUILD)/libcore.a
# The rules in Debian's Lua: for engines, the simulator, and tests.
REPLAY   := $(BUILD)/store/replay/replay.o
LUA      := $(firstword $(foreach l,lua5.4 lua,$(shell $(PKG_CONFIG) --atleast-version=5.4 $l 2>/dev/null && echo $l)) lua5.4)
LUA_LIBS := $(shell $(PKG_CONFIG) --libs $(LUA) 2>/dev/null)
# Engines but Redis': an object each, which the keeper loads. ENGINES: those whose libraries are here.
PKGS_postgresql := libpq $(LUA)
PKGS_zookeeper := $(LUA)
LIBS_zookeeper := -lzookeeper_st# of which pkg-config knows nothing
ENGINES  := $(foreach e,postgresql $(if $(findstring /,$(shell $(CC) -print-file-name=libzookeeper_st.so)),zookeeper),$(if $(shell \
            $(PKG_CONFIG) --exists $(PKGS_$e) 2>/dev/null && echo yes),$e,$(info dflock-$e.so is not \
            built: pkg-config knows not all of $(PKGS_$e))))
# First what runs when a program starts: then its variables, and most of its code, lie together.
SHIM_START := $(addprefix shim/,real.c settings.c exports.c report.c require.c) $(addprefix wire/,place.c text.c leases.c)
SHIM_SRC := $(SHIM_START) $(filter-out $(SHIM_START),$(wildcard shim/*.c wire/*.c))
SHIM_OBJ := $(SHIM_SRC:%.c=$(BUILD)/pic/%.o)
# What dflock-net has of the shim: what asks the keeper. real.c is for root.c alone, and nobody calls real_init().
NET_SHIM := acquire ask await blocker call intent mapping name netted note protect protect_page real report root recent settings start
# It knows the numbers of system calls of these machines (net/abi.h). Elsewhere it is not built, and `dflock run --net=on` says so.
NET      := $(if $(filter-out %x32,$(filter x86_64-% aarch64-%,$(shell $(CC) -dumpmachine))),$(BUILD)/dflock-net)
NET_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(wildcard net/*.c)) $(NET_SHIM:%=$(BUILD)/shim/%.o)
CLI_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(filter-out cli/front.c cli/main.c cli/doctor_main.c cli/top.c cli/top_rows.c cli/wrap.c cli/wrap_programs.c cli/wrap_service.c,$(wildcard cli/*.c)))
CLI      := $(BUILD)/libcli.a
# From the last to the first: those with servers take longest.
UNIT     := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(filter-out $(if $(NET),,tests/unit/test_net_%),$(shell ls -r tests/unit/test_*.c)))
BENCH    := $(patsubst %.c,$(BUILD)/%,$(filter-out bench/least.c bench/speed_%,$(wildcard bench/*.c))) $(BUILD)/bench/calls-static $(BUILD)/bench/least.so
AGENTS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/agents/*.c tests/interpose/*.c) $(if $(NET),$(filter-out %/bare.c,$(wildcard tests/net/*.c)))) \
            $(patsubst tests/%.c,$(BUILD)/tests/%.so,$(wildcard tests/preload/*.c))

# Quiet by default; V=1 shows the commands.
Q    := $(if $(V),,@)
say   = $(if $(V),,@printf '  %-5s %s\n' $(1) $@)

.PHONY: all help
all: $(BUILD)/libdflock.so $(BUILD)/dflockd $(BUILD)/dflock $(BUILD)/dflock-commands $(BUILD)/dflock-doctor $(NET) $(ENGINES:%=$(BUILD)/dflock-%.so) ## build the shim, the keeper, the command line and the net
help: ## list the targets
	@sed -n 's/^\([a-z][a-z -]*\):.*## /\1\t/p' Makefile | expand -t 16

$(CORE): $(CORE_OBJ)
$(CLI): $(CLI_OBJ)
$(CORE) $(CLI):
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^
# It shows engines what they may call.
$(BUILD)/dflockd: $(BUILD)/keeper/main.o $(SAN_OBJ) $(CORE) store/engines.list
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -Wl,--dynamic-list=store/engines.list -o $@ $(filter-out %.list,$^) $(LIBS)
$(BUILD)/engine/%.o: %.c Makefile $(BUILD)/prefix
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden $(PKG_CFLAGS) -MMD -MP -c -o $@ $<
# Each of their names must be found when they are loaded: in a library, or in dflockd.
define engine
ENGINE_$1 := $$(patsubst %.c,$(BUILD)/engine/%.o,$$(wildcard store/$1/*.c store/replay/*.c))
$$(ENGINE_$1) $$(patsubst %.c,$(BUILD)/%.o,$$(wildcard store/$1/*.c)): PKG_CFLAGS += $$(subst -I,-isystem ,$$(shell $(PKG_CONFIG) --cflags $$(PKGS_$1)))
$(BUILD)/dflock-$1.so: $$(ENGINE_$1) $(BUILD)/dflockd store/engines.list
	$$(call say,LD)
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) -shared -Wl,-z,now,-z,relro -o $$@ $$(ENGINE_$1) $$(shell $(PKG_CONFIG) --libs libuv hiredis $$(PKGS_$1)) $$(LIBS_$1)
	@nm -u $$(ENGINE_$1) | sed -n 's/^ *U //p' | sort -u >$$@.calls; for name in $$$$(nm -g --defined-only $(CORE) | awk 'NF == 3 { print $$$$3 }' | grep -xFf $$@.calls); do \
	  grep -qw "$$$$name" store/engines.list || { echo "$$@ calls $$$$name, which is not in store/engines.list" >&2; rm $$@; exit 1; }; done
endef
$(foreach e,$(ENGINES),$(eval $(call engine,$e)))
# What starts jobs: libc only, and static where that can be linked, which takes half the time. Functions that it does not call are
# left out, and so are the libraries that they need.
STATIC   := $(if $(SAN),,$(shell echo 'int main(void) { return 0; }' | $(CC) -static-pie -x c -o /dev/null - 2>/dev/null && echo -static-pie))
$(BUILD)/cli/%.o: CFLAGS += -ffunction-sections
$(BUILD)/cli/front.o: CPPFLAGS += -DCOMMANDS_INSTALLED='"$(PREFIX)/libexec/dflock-commands"'
$(BUILD)/dflock: $(BUILD)/cli/front.o $(SAN_OBJ) $(CLI) $(CORE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(STATIC) -Wl,--gc-sections -o $@ $^ $(if $(SAN),$(CLI_LIBS))
# Without OpenSSL, which doubles the time of its start.
$(BUILD)/dflock-commands: $(BUILD)/cli/main.o $(SAN_OBJ) $(CLI) $(CORE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CLI_LIBS)
$(BUILD)/dflock-doctor: $(BUILD)/cli/doctor_main.o $(BUILD)/cli/top.o $(BUILD)/cli/top_rows.o $(addprefix $(BUILD)/cli/,wrap.o wrap_programs.o wrap_service.o) $(SAN_OBJ) $(CLI) $(CORE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CLI_LIBS) $(TOP_LIBS) $(LIBS)
$(BUILD)/dflock-net: $(NET_OBJ) $(SAN_OBJ) $(CORE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -pthread
# The shim: libc only, never sanitized, its names hidden but for the list in exports.map. Each program maps it when it starts: in
# two pieces, instead of four that would keep read-only data from being executable. Functions of wire/ that it does not call are left out.
# musl lacks what compilers add on their own (shim/oldlibc.h): functions that check sizes; on arm64 the stack protector's variable, which
# is in glibc's dynamic linker, and __getauxval(), by which libgcc chooses atomic instructions.
SHIM_ARM64  := $(if $(filter aarch64-%,$(shell $(CC) -dumpmachine)),-fno-stack-protector -mno-outline-atomics)
SHIM_CFLAGS := $(filter-out -fsanitize% -fno-sanitize% -Wp%,$(CFLAGS)) -U_FORTIFY_SOURCE $(SHIM_ARM64) \
               -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-plt -ffunction-sections
$(BUILD)/libdflock.so: $(SHIM_OBJ) shim/exports.map
	$(call say,LD)
	$(Q)$(CC) $(SHIM_CFLAGS) $(LDFLAGS) -shared -Wl,--version-script=shim/exports.map -Wl,-z,now,-z,relro,-z,defs \
	  -Wl,-z,noseparate-code -Wl,--gc-sections -Wl,-soname,libdflock.so -o $@ $(SHIM_OBJ)
# Paths under PREFIX and LIBDIR are compiled in.
.PHONY: FORCE
$(BUILD)/prefix: FORCE
	@mkdir -p $(@D)
	@echo '$(PREFIX) $(LIBDIR)' | cmp -s - $@ || echo '$(PREFIX) $(LIBDIR)' >$@
$(BUILD)/pic/%.o: %.c Makefile $(BUILD)/prefix
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(SHIM_CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/%.o: %.c Makefile $(BUILD)/prefix
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(PKG_CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/store/scripts.o: $(wildcard store/rules/*.lua)
$(REPLAY) $(BUILD)/engine/store/replay/replay.o: store/replay/replay.lua
$(REPLAY): PKG_CFLAGS += $(subst -I,-isystem ,$(shell pkg-config --cflags $(LUA) 2>/dev/null))
$(BUILD)/store/postgresql/greet.o $(BUILD)/engine/store/postgresql/greet.o: CPPFLAGS += -DSCHEMA_INSTALLED='"$(PREFIX)/share/dflock/postgresql.sql"'
POSTGRESQL := $(patsubst %.c,$(BUILD)/%.o,$(wildcard store/postgresql/*.c))
POSTGRESQL_UNIT := $(filter $(BUILD)/unit/test_postgresql%,$(UNIT))
$(POSTGRESQL_UNIT): $(POSTGRESQL) $(REPLAY)
$(POSTGRESQL_UNIT:=.o): PKG_CFLAGS += $(subst -I,-isystem ,$(shell pkg-config --cflags libpq 2>/dev/null))
$(POSTGRESQL_UNIT): LIBS += $(LUA_LIBS) $(shell pkg-config --libs libpq 2>/dev/null)
ZOOKEEPER := $(patsubst %.c,$(BUILD)/%.o,$(wildcard store/zookeeper/*.c))
ZOOKEEPER_UNIT := $(filter $(BUILD)/unit/test_zookeeper%,$(UNIT))
$(ZOOKEEPER_UNIT): $(ZOOKEEPER) $(REPLAY)
$(ZOOKEEPER_UNIT): LIBS += $(LUA_LIBS) $(LIBS_zookeeper)
$(BUILD)/unit/test_zookeeper_calls: LIBS += -Wl,--wrap=zk_now_us
REPLAY_UNIT := $(patsubst tests/%.c,$(BUILD)/%,tests/unit/test_replay.c $(shell grep -ls script_calls.h tests/unit/*.c))
$(REPLAY_UNIT): $(REPLAY)
$(REPLAY_UNIT): LIBS += $(LUA_LIBS)
$(BUILD)/cli/status_page.o: cli/status.html
$(BUILD)/cli/doctor.o: store/postgresql/schema.sql
$(BUILD)/unit/test_cli $(BUILD)/unit/test_metrics_print: $(CLI)
$(BUILD)/unit/test_cli $(BUILD)/unit/test_metrics_print: LIBS += $(CLI_LIBS)
$(BUILD)/unit/test_growth.o: private CFLAGS += -fsanitize-coverage=trace-pc # counts the basic blocks that run
.PRECIOUS: $(BUILD)/unit/%.o
# What stands for a function of the product in a test uses few of its parameters.
$(BUILD)/unit/%.o $(BUILD)/tests/%: private CFLAGS += -Wno-unused-parameter
# An object each, which a compiler's cache can keep.
$(BUILD)/unit/%.o: tests/unit/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(PKG_CFLAGS) $(CHECK_CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/unit/%: $(BUILD)/unit/%.o $(BUILD)/unit/suite.o $(CORE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/unit/suite.o $(filter %/libcli.a %/replay.o $(POSTGRESQL) $(ZOOKEEPER),$^) $(CORE) $(LIBS) $(CHECK_LIBS)
$(BUILD)/tests/%.so: tests/%.c Makefile
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out -fsanitize% -fno-sanitize%,$(CFLAGS)) -fPIC -shared -MMD -MP -o $@ $< -ldl
# Never sanitized: these programs run under the shim, and a preload and the address sanitizer's runtime collide.
$(BUILD)/tests/%: tests/%.c Makefile
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out -fsanitize% -fno-sanitize%,$(CFLAGS)) -MMD -MP -pthread -o $@ $< -ldl
$(BUILD)/tests/net/player $(BUILD)/tests/net/agent $(BUILD)/tests/net/sequence: CFLAGS += -static # programs that a preload does not reach
# The simulator: the product's own objects, but for what the scheduler decides. What is defined in tests/sim/ is not taken from
# the archive; the calls in SIM_WRAP go to it, too.
SIM_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/sim/*.c) $(addprefix shim/,acquire.c acquire_record.c call.c intent.c))
SIM_WRAP := clock_gettime time getrandom getsockopt getppid kill nanosleep sendmsg flock close epoll_ctl holders_search sight_of comm_read host_start hostid_machine \
            table_put64 table_put32 table_put_bytes
$(BUILD)/tests/sim/sim: $(SIM_OBJ) $(REPLAY) $(CORE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SIM_WRAP:%=-Wl,--wrap=%) -o $@ $^ $(LIBS) $(LUA_LIBS)
$(BUILD)/bench/%: bench/%.c Makefile
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(PKG_CFLAGS) -MMD -MP -o $@ $< $(BENCH_LIBS)
# A program that a preload does not reach.
$(BUILD)/bench/calls-static: bench/calls.c Makefile
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -static -MMD -MP -o $@ $<
$(BUILD)/bench/least.so: bench/least.c Makefile
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -MMD -MP -o $@ $<
$(BUILD)/bench/freeze: BENCH_LIBS := $(CORE) $(LIBS)
$(BUILD)/bench/freeze: $(CORE)
$(BUILD)/bench/onestore: BENCH_LIBS := $(CORE) $(LIBS)
$(BUILD)/bench/onestore: $(CORE)
# With the servers of the unit tests.
SPEED := $(addprefix $(BUILD)/bench/speed_,postgresql zookeeper)
$(SPEED): $(BUILD)/unit/suite.o $(REPLAY) $(CORE)
$(SPEED): private CFLAGS += -Wno-unused-parameter $(CHECK_CFLAGS) $(subst -I,-isystem ,$(shell pkg-config --cflags libpq 2>/dev/null))
$(SPEED): BENCH_LIBS = $(filter %.o,$^) $(CORE) $(LIBS) $(LUA_LIBS) $(CHECK_LIBS)
$(BUILD)/bench/speed_postgresql: $(POSTGRESQL)
$(BUILD)/bench/speed_postgresql: LIBS += $(shell pkg-config --libs libpq 2>/dev/null)
$(BUILD)/bench/speed_zookeeper: $(ZOOKEEPER)
$(BUILD)/bench/speed_zookeeper: LIBS += $(LIBS_zookeeper)
$(BUILD)/bench/roundtrip $(BUILD)/bench/chain: BENCH_LIBS := $(shell $(PKG_CONFIG) --libs hiredis)
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

.PHONY: unit agents test clean
UNIT_RUN := $(addprefix run-,$(notdir $(UNIT)))
unit: $(UNIT_RUN) ## run the unit tests (run-test_NAME: one of them)
.PHONY: $(UNIT_RUN)
$(UNIT_RUN): run-%: $(BUILD)/unit/%
	@$<
agents: $(AGENTS) ## build the small programs that the tests drive
test: all agents ## run every test (what CI runs)
	scripts/test.sh
clean: ## remove what was built
	rm -rf $(BUILD)

.PHONY: vm memcheck check check-beside check-punctual check-alone check-faults check-quick rules-mutants shaky check-san model stress net-places fairness check-docs fuzz bench plot install uninstall deb format nemesis nemesis-postgresql nemesis-zookeeper sim sim-long sim-mutants model-check model-check-long
# Not under valgrind: what freezer, lastwords, stopped and supervise look at must be done in a tenth of a second; valgrind has limits of its
# own, which inherit looks at (and seeout, which has no descriptor left), and no openat2(), which refind and takeup need, or pidfd_open(), as net_thread does; and /proc/self/exe, which event starts, is valgrind then; it does not know
# that statx() takes no path, as recent calls it, and runs one thread at a time, where early
# lets two race. tls computes for minutes. The sanitizers run them.
NO_MEMCHECK := $(addprefix $(BUILD)/unit/test_,early event freezer inherit lastwords net_thread recent refind seeout stopped supervise takeup tls)
MEMCHECK_RUN := $(addprefix memcheck-,$(notdir $(filter-out $(NO_MEMCHECK),$(UNIT))))
memcheck: $(MEMCHECK_RUN) ## run the unit tests under valgrind (memcheck-test_NAME: one of them)
.PHONY: $(MEMCHECK_RUN)
$(MEMCHECK_RUN): memcheck-%: $(BUILD)/unit/%
	@CK_FORK=no SUITE_FEW_ROUNDS=1 timeout -k 5 1800 valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
	  --suppressions=tests/unit/check.supp --trace-children=no $<
sim: $(BUILD)/tests/sim/sim ## run the simulator: schedules that once failed, and new ones for SIM_SECONDS
	$(NICE) $< --found tests/sim/found.txt --from $(or $(SIM_FROM),1) --count 1000000 --seconds $(or $(SIM_SECONDS),75) --minimise
	$(NICE) $< --from $(or $(SIM_FROM),1) --count 40 --twice
sim-long: ## the same for an hour, with schedules that differ every day
	$(MAKE) sim SIM_SECONDS=$(or $(SIM_SECONDS),3600) SIM_FROM=$$(date +%Y%m%d000000)
sim-mutants: $(BUILD)/tests/sim/sim ## build the product with one mistake at a time; the simulator must find each (M="NAME" ...)
	/usr/bin/python3 tests/sim/mutants.py $(BUILD) $(M)
# What Python has compiled is kept in the build folder: each of ten workers, and each program that a test starts, would compile it again else.
PYTEST := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(BUILD))/pycache DFLOCK_BUILD=$(abspath $(BUILD)) /usr/bin/python3 -m pytest -q -rsfE -p no:cacheprovider
# They wait for something most of the time, so several run at a time for each processor. Those that cannot share the machine are marked
# "alone". Those that are about being in time, and do nothing else, share it with one another ("punctual"); so do the fault runs, each in
# networks of its own. No test may take longer than TEST_SECONDS.
TEST_SECONDS ?= 600
LIMITED  := DFLOCK_TEST_SECONDS=$(TEST_SECONDS) $(PYTEST)
BESIDE    = $(LIMITED) --durations=25 -n $(or $(JOBS),$(shell expr $$(nproc) \* 5)) -m "not alone and not punctual"
check: all agents ## run the tests with processes (pytest), JOBS at a time; T="..." runs these, one after the other
	$(if $(T),cd tests && $(PYTEST) $(T),for part in beside punctual alone faults; do $(MAKE) -s check-$$part || exit 1; done)
# The tests of the shim, with programs of musl, in a folder that has these and links to the rest. Kernel headers are not musl's.
MUSL     := $(BUILD)/musl
PROGRAMS := $(filter $(BUILD)/tests/agents/% $(BUILD)/tests/interpose/%,$(AGENTS))
.PHONY: check-musl check-interpose programs
programs: $(PROGRAMS)
check-musl: all ## run the tests of the shim with programs that musl-gcc builds (T="..." runs these)
	@command -v musl-gcc >/dev/null || { echo 'musl-gcc is missing: apt-get install musl-tools'; exit 1; }
	@mkdir -p $(MUSL)/include
	@ln -sf $(filter-out %.o %.a,$(wildcard $(abspath $(BUILD))/*dflock*)) $(MUSL)
	@ln -sfn /usr/include/linux /usr/include/asm-generic /usr/include/$(shell musl-gcc -print-multiarch)/asm $(MUSL)/include
	@CPPFLAGS="-idirafter $(MUSL)/include -include tests/musl.h" $(MAKE) -s BUILD=$(MUSL) CC=musl-gcc LDFLAGS= programs check-interpose
check-interpose: programs
	cd tests && $(LIMITED) -n $(or $(JOBS),$(shell expr $$(nproc) \* 3)) $(or $(T),interpose)
check-beside: all agents
	cd tests && { $(PYTEST) --collect-only >/dev/null; $(BESIDE) --ignore=nemesis; } # compiled once
check-punctual: all agents
	cd tests && $(LIMITED) -n 4 -m punctual
check-alone: all agents
	cd tests && $(LIMITED) -m alone --ignore=nemesis
check-faults: all agents
	cd tests && $(LIMITED) -n 4 nemesis
check-quick: all agents ## run some tests with processes, of the main job and of each command
	cd tests && $(LIMITED) -n $(or $(JOBS),$(shell expr $$(nproc) \* 3)) -m "not alone and not punctual and not long" interpose \
	  cluster/test_flock.py cluster/test_record.py cluster/test_recall.py cluster/test_keeper_dies.py cli/test_status.py cli/test_who.py cli/test_lock.py cli/test_usage.py
rules-mutants: all agents ## build the product with one mistake in the rules at a time; tests must find each in Redis and outside of it (store/replay/)
	cd tests && $(LIMITED) -n $(or $(JOBS),$(shell nproc)) -m rules harness/test_unit_mistakes.py
# A test is shaky if it fails once in ROUNDS (100) at a load of LOAD (8).
shaky: all agents ## run T="..." ROUNDS (100) times while LOAD (8) processes compute
	scripts/shaky.sh $(or $(ROUNDS),100) $(or $(LOAD),8) make -s check T="$(T)"
# Without what builds mutants, or preloads into a sanitized dflock.
check-san: ## run tests with processes with a sanitized keeper and dflock (T="...")
	$(MAKE) -s SAN=1 BUILD=build-san all agents
	$(MAKE) -s SAN=1 BUILD=build-san check-with-processes T="$(or $(T),cluster cli faults ground)"
.PHONY: check-with-processes
check-with-processes:
	cd tests && $(BESIDE) -k "not mutants and not puts_the_library" $(T)
# Whatever the store's scripts and the keeper's way to it depend on.
STORE_UNIT   := store store_nonsense store_record store_rests store_rights store_rules store_scripts
STORE_TESTS  ?= cluster/test_flock.py cluster/test_recall.py cluster/test_store_loss.py cluster/test_redis_cluster.py cli/test_doctor_acl.py faults/test_store_refused.py
RIGHTS_TESTS ?= cluster/test_flock.py cluster/test_recall.py cluster/test_once.py cluster/test_redis_key.py cluster/test_break.py cluster/test_store_loss.py cli/test_who.py
SERVERS      ?= $(wildcard $(CURDIR)/build-servers/*-server)
.PHONY: check-stores check-rights check-postgresql check-zookeeper calls-postgresql calls-zookeeper speed-postgresql speed-zookeeper
check-stores: all agents ## run the tests of the store with this machine's redis-server, and with SERVERS (scripts/servers.sh build-servers)
	@for server in redis-server $(SERVERS); do echo "== $$($$server --version)"; export REDIS_SERVER=$$server; \
	  $(MAKE) -s $(STORE_UNIT:%=run-test_%) && (cd tests && $(PYTEST) $(STORE_TESTS)) || exit 1; done
check-rights: all agents ## run tests of hosts as a user with the rights that `dflock doctor --acl` prints
	cd tests && DFLOCK_TEST_LEAST_RIGHTS=1 $(PYTEST) $(RIGHTS_TESTS)
check-postgresql check-zookeeper: check-%: all agents ## run tests/cluster with such a store (T="..." runs these), but what is about Redis alone: Sentinel, Cluster, replicas, TLS, redis_key, the early release, its commands, and the proxy, which speaks its protocol
	export DFLOCK_TEST_STORE=$*; cd tests && $(BESIDE) $(or $(T),cluster) && \
	  $(if $(T),:,$(LIMITED) -m "alone or punctual" cluster)
# Of the tests above, what scripts/test.sh runs: each depends on what the variant changes.
SOME_musl       := interpose/test_interpose.py interpose/test_asking.py interpose/test_record_calls.py interpose/test_record_undo.py interpose/test_starting.py
SOME_postgresql := cluster/test_flock.py cluster/test_recall.py cluster/test_keeper_dies.py cluster/test_store_loss.py cluster/test_break.py cluster/test_once.py
SOME_zookeeper  := $(if $(wildcard /usr/share/java/zookeeper.jar),cluster/test_zookeeper.py cluster/test_recall.py cluster/test_once.py)
SOME_san        := cluster/test_flock.py cluster/test_record.py cluster/test_keeper_dies.py cluster/test_parent_dies.py cluster/test_freeze.py faults/test_room.py
.PHONY: check-some
check-some: check-some-postgresql check-some-san check-some-zookeeper check-some-musl
check-some-%:
	$(if $(SOME_$*),$(MAKE) -s check-$* JOBS=$(or $(JOBS),$(shell expr $$(nproc) \* 3)) T="$(SOME_$*)",@echo "skipped: tests of hosts with a store that is not installed: $*")
calls-postgresql calls-zookeeper: calls-%: $(BUILD)/unit/test_%_calls ## compare CALLS (100000) random calls of the rules in such a store and in Redis
	RANDOM_CALLS=$(or $(CALLS),100000) CK_DEFAULT_TIMEOUT=3600 $<
speed-postgresql speed-zookeeper: speed-%: $(BUILD)/bench/speed_% ## what a lock in such a store costs beside a plain client's transaction; PG_PLACE (/dev/shm): where the PostgreSQL lies
	CK_DEFAULT_TIMEOUT=600 $<
stress: all agents ## lock and unlock at full speed on two hosts for STRESS_SECONDS, keepers and the store in trouble
	DFLOCK_STRESS_SECONDS=$(or $(STRESS_SECONDS),900) DFLOCK_STRESS_CALLS=100000000000 $(MAKE) check T="-s cluster/test_page_stress.py"
model: all agents ## play N (20000) random sequences of lock calls on one kernel and over hosts, instead of the 1000 of `make check`
	DFLOCK_MODEL_SEQUENCES=$(or $(N),20000) $(MAKE) check T="-s model/test_model.py -k one_kernel"
net-places: all agents ## kill each supervisor of the net at each of its system calls, instead of the few of `make check`
	DFLOCK_NET_PLACES=1 $(MAKE) check T="faults/test_net_places.py"
fairness: all agents ## programs of two hosts and a client of each library want one lock, for FAIRNESS_SECONDS (60) each: who gets it how often
	cd tests && DFLOCK_FAIRNESS_SECONDS=$(or $(FAIRNESS_SECONDS),60) $(PYTEST) -s clients/test_fairness.py
vm: ## run the tests of the net in a virtual machine, with the kernel of RELEASE (bookworm, trixie) and ARCH (amd64, arm64); T="..." runs these; as root
	scripts/vm.sh $(or $(RELEASE),trixie) $(or $(ARCH),amd64) $(T)
nemesis: all agents ## a fault run of NEMESIS_SECONDS (1800) with one server, with three, and with a Redis Cluster: 1.5 hours; as root
	cd tests && DFLOCK_NEMESIS_SECONDS=$(or $(NEMESIS_SECONDS),1800) $(PYTEST) -s nemesis/test_nemesis.py
nemesis-postgresql nemesis-zookeeper: nemesis-%: ## a fault run of NEMESIS_SECONDS with such a store; as root
	DFLOCK_TEST_STORE=$* $(MAKE) nemesis
check-docs: all ## what documentation and sources must agree on; which way files call each other, and their names
	scripts/check-docs.sh
	scripts/check-rooms.py
	scripts/check-numbers.py
model-check: ## check the models in docs/model with spin, and that their mutants are caught
	$(NICE) docs/model/check.sh
model-check-long: ## the same with larger bounds: hours, and 20 GB
	docs/model/check.sh long
fuzz: ## fuzz configuration, messages, table of leases, replies and TLS for FUZZ_SECONDS each
	$(NICE) scripts/fuzz.sh $(or $(FUZZ_SECONDS),10)
bench: all $(BENCH) ## measure, ten minutes; prints a table and writes $(BUILD)/bench.json; B=quick: two minutes, B="NAME ...": these
	PYTHONDONTWRITEBYTECODE=1 DFLOCK_BUILD=$(abspath $(BUILD)) bench/run.py $(B)
plot: ## draw the pictures of docs/performance.md from what `make bench` has measured (gnuplot)
	bench/plot.py $(BUILD)/bench.json docs
deb: ## build the Debian package of what is committed into $(BUILD)/deb (DEB_VERSION: another version than debian/changelog's; DEB_ARCH: another architecture)
	DEB_ARCH=$(DEB_ARCH) scripts/deb.sh $(abspath $(BUILD))/deb $(DEB_VERSION)
format: ## format the C sources with clang-format
	clang-format -i $$(git ls-files '*.c' '*.h')
install: all ## install under PREFIX (DESTDIR)
	install -D -m 755 $(BUILD)/libdflock.so "$(DESTDIR)$(LIBDIR)"/libdflock.so
	install -D -m 755 $(BUILD)/dflockd "$(DESTDIR)$(PREFIX)"/sbin/dflockd
	install -D -m 755 $(BUILD)/dflock "$(DESTDIR)$(PREFIX)"/bin/dflock
	install -D -m 755 $(BUILD)/dflock-commands "$(DESTDIR)$(PREFIX)"/libexec/dflock-commands
	install -D -m 755 $(BUILD)/dflock-doctor "$(DESTDIR)$(PREFIX)"/libexec/dflock-doctor
	$(if $(NET),install -D -m 755 $(NET) "$(DESTDIR)$(PREFIX)"/libexec/dflock-net)
	for e in $(ENGINES); do install -D -m 644 $(BUILD)/dflock-$$e.so "$(DESTDIR)$(PREFIX)"/libexec/dflock-$$e.so || exit 1; \
	  [ ! -e store/$$e/schema.sql ] || install -D -m 644 store/$$e/schema.sql "$(DESTDIR)$(PREFIX)"/share/dflock/$$e.sql || exit 1; done
	install -D -m 644 packaging/dflock.service "$(DESTDIR)$(PREFIX)"/lib/systemd/system/dflock.service
	sed -i 's|=/usr/\(s\?bin\)/|=$(PREFIX)/\1/|' "$(DESTDIR)$(PREFIX)"/lib/systemd/system/dflock.service
	install -D -m 644 packaging/tmpfiles.d/dflock.conf "$(DESTDIR)$(PREFIX)"/lib/tmpfiles.d/dflock.conf
	install -D -m 644 packaging/bash-completion/dflock "$(DESTDIR)$(PREFIX)"/share/bash-completion/completions/dflock
	install -D -m 644 packaging/zsh-completion/_dflock "$(DESTDIR)$(ZSHDIR)"/_dflock
	install -D -m 644 config/dflock.conf "$(DESTDIR)$(PREFIX)"/share/doc/dflock/dflock.conf.example
	for f in packaging/prometheus/*; do install -D -m 644 $$f "$(DESTDIR)$(PREFIX)"/share/doc/dflock/prometheus/$${f##*/} || exit 1; done
	sed -i 's|=/usr/bin/|=$(PREFIX)/bin/|' "$(DESTDIR)$(PREFIX)"/share/doc/dflock/prometheus/dflock-metrics.service
	for m in man/*.[1-8]; do install -D -m 644 $$m "$(DESTDIR)$(PREFIX)"/share/man/man$${m##*.}/$${m##*/} || exit 1; done
# So that LD_PRELOAD=libdflock.so finds it, where LIBDIR is one of the dynamic linker's folders.
	[ -n "$(DESTDIR)" ] || ldconfig || echo 'ldconfig failed: LD_PRELOAD needs the whole path $(LIBDIR)/libdflock.so'
uninstall: ## remove what install put there
	rm -f "$(DESTDIR)$(LIBDIR)"/libdflock.so "$(DESTDIR)$(ZSHDIR)"/_dflock
	cd "$(DESTDIR)$(PREFIX)" && rm -f sbin/dflockd bin/dflock libexec/dflock-commands libexec/dflock-doctor libexec/dflock-net libexec/dflock-*.so share/dflock/*.sql lib/systemd/system/dflock.service \
	  lib/tmpfiles.d/dflock.conf share/bash-completion/completions/dflock share/doc/dflock/dflock.conf.example
	for m in man/*.[1-8]; do rm -f "$(DESTDIR)$(PREFIX)"/share/man/man$${m##*.}/$${m##*/}; done
	rm -rf "$(DESTDIR)$(PREFIX)"/share/doc/dflock/prometheus
	rmdir "$(DESTDIR)$(PREFIX)"/share/doc/dflock
