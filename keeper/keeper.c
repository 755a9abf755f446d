/* A keeper from start to end: puts the modules together. See main.h. */
#include <errno.h>
#include <stdarg.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/leases/act.h"
#include "keeper/clock.h"
#include "keeper/callers/configfile.h"
#include "keeper/callers/configwatch.h"
#include "keeper/callers/dispatch.h"
#include "keeper/callers/ending.h"
#include "keeper/fronts/door.h"
#include "keeper/fronts/fronts.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/event.h"
#include "keeper/leases/host.h"
#include "keeper/leases/hostid.h"
#include "keeper/leases/past.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_file.h"
#include "keeper/guard/table_text.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/leases/keeper.h"
#include "keeper/main.h"
#include "keeper/kernel/mounts.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/room.h"
#include "keeper/leases/probing.h"
#include "keeper/callers/listener.h"
#include "keeper/callers/session.h"
#include "keeper/callers/deadlock.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"
#include "keeper/leases/ages.h"
#include "keeper/leases/reopen.h"
#include "keeper/kernel/workers.h"
#include "wire/rundir.h"

#define ALIVE_MS   100
#define PIN_MAX_MS 60000 /* no configuration may say more (config.c) */

/* What only start and end need; keeper.h has what the modules share. */
struct life {
	struct keeper k;
	const struct keeper_options *options;
	int door; /* door.h; -1: the keeper serves only its own user */
	uv_loop_t loop;
	uv_timer_t alive;
	uv_work_t first_work;
	unsigned session_limit;
};

static struct life *life_of(struct keeper *k)
{
	return (struct life *)k; /* its first member */
}

/* --- the start --- */

__attribute__((format(printf, 2, 3))) static void keeper_cannot_start(const struct keeper_options *o,
								      const char *format, ...)
{
	char line[WIRE_REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	log_about(LINE_KEEPER_CANNOT_START, &(struct log_about){.subject = line}, "%s", line);
	if (o->ready_fd >= 0 && write(o->ready_fd, line, strlen(line)) < 0)
		log_event(LINE_KEEPER_CANNOT_START,
			  "the process that waits for this keeper cannot be told why it ends: %s", strerror(errno));
}

/* At most two descriptors per question, and some for the keeper itself. */
static void raise_limits(struct life *life)
{
	struct rlimit limit = {.rlim_cur = 1024, .rlim_max = 1024};

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > 1 << 20)
		limit.rlim_cur = 1 << 20;
	life->session_limit = limit.rlim_cur > 256 ? (limit.rlim_cur - 128) / 2 : 64;
	room_start(&life->k, (unsigned)limit.rlim_cur);
}

static int load_config(struct keeper *k, const struct keeper_options *o)
{
	char why[WIRE_REASON_BYTES];

	k->page = pagefile_open(o->dir_fd, why, sizeof(why));
	if (!k->page) {
		keeper_cannot_start(o, "%s: %s", o->runtime_dir, why);
		return -EINVAL;
	}
	leasepage_reset(k->page);
	if (configfile_load(k, o->config, why, sizeof(why)) < 0 || host_prepare(k, why, sizeof(why)) < 0) {
		keeper_cannot_start(o, "%s", why);
		return -EINVAL;
	}
	return 0;
}

static void on_old_pins_over(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	int64_t left = k->old_pins.until_ns - clock_now_ns();
	struct file *file, *next;

	if (left > 0) { /* the loop counts from when it last looked at the clock */
		uv_timer_start(timer, on_old_pins_over, left / NS_PER_MS + 1, 0);
		return;
	}
	HASH_ITER (hh, k->files, file, next)
		for (int i = 0; i < WIRE_SPACES; i++)
			waiters_unpinned(&file->locks[i]);
	queue_settle(k);
}

/*
 * Some leases cannot be read. Callers may still use what the earlier keeper granted under them, until the last pin
 * ends. Then the holders are killed, since no keeper can renew these leases.
 */
static void lose_damaged(struct keeper *k, const struct keeper_options *o, unsigned damaged)
{
	const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};

	if (!damaged)
		return;
	log_event(LINE_TABLE_DAMAGED,
		  "%s: %u leases cannot be read from the table: processes that hold locks under them are ended",
		  o->runtime_dir, damaged);
	while (clock_now_ns() < k->old_pins.until_ns) {
		nanosleep(&pause, NULL);
		table_alive(k->table); /* it does not hang */
	}
	k->lost.counts[TABLE_WHY_UNKNOWN] += damaged;
	table_lose_damaged(k->table);
}

/* The kernel's number of a file that was taken up: from the table, if the dead keeper had learnt it; else from the file
 * that was opened again. */
static void learn_numbers(struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next) {
		struct file *file = lease->lock->file;
		const struct stat st = {.st_dev = file->key.dev, .st_ino = file->key.ino};
		struct identity id;

		if (!table_learnt(k->table, lease->slot, &id.dev, &id.ino) && file->fd >= 0)
			id = identity_of(file->fd, 0, &st);
		file_learnt(file, &id);
		table_learn(k->table, lease->slot, file->id.dev, file->id.ino);
	}
}

static int take_up(struct keeper *k, const struct keeper_options *o)
{
	unsigned damaged;
	int64_t now = clock_now_ns();
	int ret;

	table_host(k->table, k->host);
	log_set_host(k->host);
	host_takeup(k);
	k->old_pins.until_ns = table_pins_until(k->table, now + PIN_MAX_MS * NS_PER_MS); /* mutant: old-pins */
	ret = table_take_up(k->table, takeup_entry, k, &damaged);
	if (ret < 0) {
		keeper_cannot_start(o, "%s: the table of leases cannot be opened: %s%s", o->runtime_dir, strerror(-ret),
				    table_file_advice(ret));
		return ret;
	}
	lose_damaged(k, o, damaged);
	learn_numbers(k);
	ages_takeup(k);
	host_took_up(k);
	if (!k->leases)
		k->old_pins.until_ns = 0;
	else if (k->old_pins.until_ns > now)
		uv_timer_start(&k->old_pins.timer, on_old_pins_over, (k->old_pins.until_ns - now) / NS_PER_MS + 1, 0);
	return 0;
}

/* Leases that have ceased to be sure: a process that is still in a lock call has not been told that it holds a lock. */
static void note_callers(struct keeper *k)
{
	const struct session *s;

	DL_FOREACH (k->sessions->all, s) {
		const struct lock *lock = s->waiter.lock;

		if (!lock || !member_is_past(lock->file->member) ||
		    (s->behalf.thread && s->waiter.pin_until_ns)) /* a call under way needs no further answer */
			continue;
		if (s->waiter.rests && session_has_hung_up(s)) /* it has its answer */
			continue;
		table_add_caller(k->table, &(struct table_caller){.pid = s->peer.pid,
								  .space = lock->space,
								  .member = member_number(lock->file->member),
								  .dev = lock->file->key.dev,
								  .ino = lock->file->key.ino});
	}
}

static void on_covered(void *arg, uint64_t dev)
{
	page_cover(arg, dev);
}

static void on_alive(uv_timer_t *timer)
{
	struct life *life = timer->data;
	struct keeper *k = &life->k;

	mounts_covered(k->mounts, k->config, on_covered, k->page);
	deadline_notice(k);
	leasepage_refresh(k);
	table_alive(k->table);
	host_tick(k);
	event_take_deeds(k);
	log_tick();
	note_callers(k);
	queue_settle(k);
}

static void on_left(void *arg, const struct store_reply *reply)
{
	struct keeper *k = arg;

	(void)reply; /* with or without success: a beat that stays is swept later */
	if (!--k->leaves)
		uv_stop(k->loop);
}

/* See ending.h. */
static void keeper_end(struct keeper *k, const char *why)
{
	bool had_leases = k->leases != NULL;

	if (k->leaving)
		return;
	k->leaving = true;
	log_event(LINE_KEEPER_ENDS, "ends: %s", why);
	leasepage_reset(k->page);
	act_leave_all(k);
	/* Done before the store is told: a question that came in between would get a lease that no keeper renews. */
	listener_stop(k);
	if (!had_leases)
		table_forget_twin(k->table);
	for (unsigned i = 0; !had_leases && i < k->member_count; i++)
		k->leaves += store_is_up(k->members[i].store);
	if (!k->leaves) {
		uv_stop(k->loop);
		return;
	}
	/* A beat that the server executes after this would give the host a seat of long ago: the next keeper would count as its copy. */
	table_forget_host(k->table);
	for (unsigned i = 0, leaves = k->leaves; leaves; i++)
		if (store_is_up(k->members[i].store)) {
			leaves--;
			store_leave(k->members[i].store, on_left, k);
		}
}

/* What needs only the loop and the configuration. */
static int start_parts(struct keeper *k)
{
	static int (*const starts[])(struct keeper *) = {event_start, sessions_init, deadlock_init};
	int ret = 0;

	act_start(k);
	dispatch_take_news(k);
	for (size_t i = 0; ret == 0 && i < sizeof(starts) / sizeof(*starts); i++)
		ret = starts[i](k);
	if (ret == 0)
		ret = hostid_make(k->config->host, hostid_machine(), k->host);
	return ret;
}

static void do_nothing(uv_work_t *work)
{
	(void)work;
}

/* What looks at files, processes and signals. */
static int start_looking(struct life *life)
{
	struct keeper *k = &life->k;
	int ret;

	k->workers = workers_new(k->loop);
	k->probes = probes_new(k->loop);
	k->mounts = mounts_new();
	if (deeds_counted(life->options->table, DEEDS_HANGS))
		mounts_doubt(k->mounts);
	k->fronts = life->door >= 0 ? fronts_new(k->loop, life->door, &dispatch_fronts_news) : NULL;
	if (!k->workers || !k->probes || (k->system && !k->fronts))
		return -ENOMEM;
	/* libuv starts its threads with the first work: now, while signals to end are blocked, and so in these threads for good. */
	uv_queue_work(k->loop, &life->first_work, do_nothing, NULL);
	uv_timer_init(k->loop, &life->alive);
	life->alive.data = life;
	uv_timer_start(&life->alive, on_alive, 0, ALIVE_MS);
	ret = ending_start(k, keeper_end);
	if (ret == 0)
		ret = seenout_start(k, waiters_unpinned);
	return ret;
}

static int keeper_start(struct life *life)
{
	const struct keeper_options *o = life->options;
	struct keeper *k = &life->k;
	const char *what = "start", *dir = "", *colon = "";
	int ret;

	raise_limits(life);
	uv_timer_init(k->loop, &k->old_pins.timer);
	k->old_pins.timer.data = k;
	if (load_config(k, o) < 0)
		return -EINVAL;
	ret = start_parts(k);
	if (ret == 0)
		ret = start_looking(life);
	if (ret == 0) {
		what = "watch its parent";
		ret = orphan_watch(k);
	}
	if (ret == 0) {
		what = "start";
		ret = configwatch_start(k);
	}
	if (ret == 0 && take_up(k, o) < 0)
		return -EIO;
	if (ret == 0) {
		what = "serve", dir = o->runtime_dir, colon = ": ";
		ret = host_start(k);
	}
	if (ret == 0)
		ret = listener_start(k, life->session_limit);
	if (ret < 0) {
		keeper_cannot_start(o, "%s%sthe keeper cannot %s: %s", dir, colon, what, strerror(-ret));
		return ret;
	}
	past_start(k, session_is_asking);
	toolong_start(k);
	return 0;
}

/* --- the end --- */

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void keeper_free(struct keeper *k)
{
	static void (*const frees[])(struct keeper *) = {configfile_free, listener_free, sessions_free,
							 deadlock_free,   ending_free,   event_free};

	for (size_t i = 0; i < sizeof(frees) / sizeof(*frees); i++)
		frees[i](k);
	free(k->names_dir);
}

static void keeper_clean_up(struct keeper *k)
{
	static void (*const stops[])(struct keeper *) = {orphan_close, event_stop,   past_stop,
							 toolong_stop, host_stop,    room_stop,
							 seenout_stop, ending_close, configwatch_close};

	struct life *life = life_of(k);
	sigset_t signals;

	/* Another signal would look to the parent as if the keeper had died. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	queue_stop(k);
	for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++)
		stops[i](k);
	uv_close((uv_handle_t *)&life->alive, NULL);
	uv_close((uv_handle_t *)&k->old_pins.timer, NULL);
	uv_run(k->loop, UV_RUN_DEFAULT); /* until probes and workers have ended: there is no timer or socket any more */
	act_free_all(k);
	past_free(k);
	fronts_free(k->fronts);          /* before the loop runs again: it must not call back into what is freed */
	uv_run(k->loop, UV_RUN_DEFAULT); /* workers have closed what is not on local file systems */
	probes_free(k->probes);
	workers_free(k->workers);
	mounts_free(k->mounts);
	table_text_close(k->table);
	ages_close(k);
	pagefile_close(k->page);
	uv_walk(k->loop, close_handle, NULL);
	uv_run(k->loop, UV_RUN_DEFAULT);
	uv_loop_close(k->loop);
	keeper_free(k);
}

int keeper_run(const struct keeper_options *options)
{
	struct life *life = calloc(1, sizeof(*life));
	struct keeper *k = &life->k;
	bool unconfirmed;

	if (!life)
		return KEEPER_EXIT_CONFIG;
	life->options = options;
	signal(SIGPIPE, SIG_IGN);
	k->uid = geteuid();
	k->system = k->uid == 0 && strcmp(options->runtime_dir, "/run/dflock") == 0;
	k->foreground = options->foreground;
	life->door = k->system ? door_start() : -1; /* while there are no threads, and few descriptors to inherit */
	uv_loop_init(&life->loop);
	k->loop = &life->loop;
	k->dir_fd = options->dir_fd;
	k->options = options;
	k->table = options->table;
	k->started = time(NULL);
	snprintf(k->runtime_dir, sizeof(k->runtime_dir), "%s", options->runtime_dir);
	k->names_dir = names_make(k->dir_fd, k->system);
	if (!k->names_dir)
		log_event(LINE_NAMES_UNUSABLE, "%s/" NAMES_DIR " cannot be made: %s; `dflock lock` is refused",
			  k->runtime_dir, strerror(errno));
	if (keeper_start(life) < 0) {
		free(k->names_dir);
		return KEEPER_EXIT_CONFIG; /* the process ends, and the rest with it: threads may be at work for the loop */
	}
	log_event(LINE_KEEPER_SERVES, "version " DFLOCK_VERSION " serves %s as host %s (%s, %zu rules)", k->runtime_dir,
		  k->host, k->config->path, k->config->rule_count);
	if (options->ready_fd >= 0)
		close(options->ready_fd);
	supervise_serves(k->table, options->serves);
	uv_run(k->loop, UV_RUN_DEFAULT);
	/* A service manager would take the status for a failure, and start the next one. */
	unconfirmed = ending_was_unconfirmed(k) && !options->foreground;
	keeper_clean_up(k);
	free(life);
	return unconfirmed ? KEEPER_EXIT_UNCONFIRMED : KEEPER_EXIT_IDLE;
}
