/* A keeper from start to end: puts the modules together. See main.h. */
#include <errno.h>
#include <stdarg.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/leases/act.h"
#include "keeper/leases/answers.h"
#include "keeper/clock.h"
#include "keeper/callers/configwatch.h"
#include "keeper/callers/ending.h"
#include "keeper/fronts/door.h"
#include "keeper/fronts/fronts.h"
#include "keeper/leases/host.h"
#include "keeper/guard/table_earlier.h"
#include "keeper/guard/table_notes.h"
#include "keeper/guard/table_text.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/main.h"
#include "keeper/kernel/mounts.h"
#include "keeper/orphan.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/room.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/sessions.h"
#include "keeper/leases/takeup.h"
#include "keeper/kernel/workers.h"

#define ALIVE_MS   100
#define PIN_MAX_MS 60000 /* no configuration may say more (config.c) */

/* keeper.h has what the modules share; this is only for start and end. */
struct life {
	struct keeper k;
	const struct keeper_options *options;
	int door; /* front.h; -1: only our own user asks */
	uv_loop_t loop;
	uv_timer_t alive;
};

static struct life *life_of(struct keeper *k)
{
	return (struct life *)k; /* its first member */
}

void keeper_replace_config(struct keeper *k, struct config *config)
{
	/* The store keeps a pointer to its part, which control.c has found to be the same: that stays where it is. */
	struct config old = *k->config;
	struct lease *lease, *next;

	*k->config = *config;
	k->config->store = old.store;
	old.store = config->store;
	*config = old;
	config_free(config);
	HASH_ITER (hh, k->leases, lease, next)
		table_set_on_lost(k->table, lease->slot, config_on_lost(k->config, lease->lock->file->path));
}

/* --- the start --- */

__attribute__((format(printf, 2, 3))) static void cannot_start(const struct keeper_options *o, const char *format, ...)
{
	char line[WIRE_REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	log_error("%s", line);
	if (o->ready_fd >= 0 && write(o->ready_fd, line, strlen(line)) < 0)
		log_error("nobody reads why: %s", strerror(errno));
}

/* The machine's name and 64 random bits: two keepers of one machine are two hosts. */
static int make_host(struct keeper *k)
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	snprintf(k->host, sizeof(k->host), "%.64s-%016llx", k->config->host, (unsigned long long)random);
	for (char *p = k->host; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			*p = '_';
	return 0;
}

/* Two descriptors per question at the most, and some for ourselves. */
static void raise_limits(struct keeper *k)
{
	struct rlimit limit = {.rlim_cur = 1024, .rlim_max = 1024};

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > 1 << 20)
		limit.rlim_cur = 1 << 20;
	k->session_limit = limit.rlim_cur > 256 ? (limit.rlim_cur - 128) / 2 : 64;
	room_start(k, (unsigned)limit.rlim_cur);
}

static int load_config(struct keeper *k, const struct keeper_options *o)
{
	char why[WIRE_REASON_BYTES];

	k->page = pagefile_open(o->dir_fd, why, sizeof(why));
	if (!k->page) {
		cannot_start(o, "%s: %s", o->runtime_dir, why);
		return -EINVAL;
	}
	leasepage_reset(k->page);
	if (configfile_load(k, o->config, why, sizeof(why)) < 0) {
		cannot_start(o, "%s", why);
		return -EINVAL;
	}
	return 0;
}

static void on_old_pins_over(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	int64_t left = k->old_pins_until_ns - clock_now_ns();
	struct file *file, *next;

	if (left > 0) { /* the loop counts from when it last looked at the clock */
		uv_timer_start(timer, on_old_pins_over, left / NS_PER_MS + 1, 0);
		return;
	}
	keeper_enter(k);
	HASH_ITER (hh, k->files, file, next)
		for (int i = 0; i < WIRE_SPACES; i++)
			lock_unpinned(&file->locks[i]);
	keeper_leave(k);
}

/*
 * Some leases cannot be read. What the keeper before us granted under them may still be used until the last pin ends; then
 * the holders are ended, since nobody renews these leases.
 */
static void lose_damaged(struct keeper *k, const struct keeper_options *o, unsigned damaged)
{
	const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};

	if (!damaged)
		return;
	log_error("%s: %u leases cannot be read from the table: processes that hold locks under them are ended",
		  o->runtime_dir, damaged);
	while (clock_now_ns() < k->old_pins_until_ns) {
		nanosleep(&pause, NULL);
		table_alive(k->table); /* it does not hang */
	}
	table_lose_damaged(k->table);
}

/* What was taken up: the table knows what the dead keeper had learnt, else the file that was opened again does. */
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
	k->deadline_ns = k->table->head->deadline_ns;
	k->old_pins_until_ns = table_pins_until(k->table, now + PIN_MAX_MS * NS_PER_MS); /* mutant: old-pins */
	snprintf(k->taken_incarnation, sizeof(k->taken_incarnation), "%s", table_incarnation(k->table));
	ret = table_take_up(k->table, takeup_entry, k, &damaged);
	if (ret < 0) {
		cannot_start(o, "%s: the table of leases cannot be opened: %s", o->runtime_dir, strerror(-ret));
		return ret;
	}
	lose_damaged(k, o, damaged);
	learn_numbers(k);
	if (k->deadline_ns)
		host_set_deadline(k, k->deadline_ns);
	if (!k->leases)
		k->taken_incarnation[0] = '\0';
	if (!k->leases)
		k->old_pins_until_ns = 0;
	else if (k->old_pins_until_ns > now)
		uv_timer_start(&k->old_pins, on_old_pins_over, (k->old_pins_until_ns - now) / NS_PER_MS + 1, 0);
	return 0;
}

/* The leases have ceased to be sure: who is still in a lock call has been told nothing. */
static void note_callers(struct keeper *k)
{
	const struct session *s;

	DL_FOREACH (k->sessions, s) {
		if (!s->lock)
			continue;
		table_add_caller(k->table, &(struct table_caller){.pid = s->peer.pid,
								  .space = s->lock->space,
								  .dev = s->lock->file->key.dev,
								  .ino = s->lock->file->key.ino});
	}
}

static void on_alive(uv_timer_t *timer)
{
	struct life *life = timer->data;
	struct keeper *k = &life->k;

	leasepage_refresh(k);
	table_alive(k->table);
	if (k->leases && k->deadline_ns && clock_now_ns() >= k->table->head->freeze_at_ns)
		note_callers(k);
}

static int start(struct life *life)
{
	const struct keeper_options *o = life->options;
	struct keeper *k = &life->k;
	int ret;

	raise_limits(k);
	uv_timer_init(k->loop, &k->old_pins);
	k->old_pins.data = k;
	if (load_config(k, o) < 0)
		return -EINVAL;
	k->workers = workers_new(k->loop);
	k->probes = probes_new(k->loop);
	k->mounts = mounts_new();
	k->fronts = life->door >= 0 ? fronts_new(k->loop, life->door, &session_fronts_news) : NULL;
	if (!k->workers || !k->probes || (k->system && !k->fronts) || make_host(k) < 0) {
		cannot_start(o, "the keeper cannot start: %s", strerror(errno));
		return -ENOMEM;
	}
	uv_timer_init(k->loop, &life->alive);
	life->alive.data = life;
	uv_timer_start(&life->alive, on_alive, 0, ALIVE_MS);
	ending_start(k);
	ret = orphan_watch(k);
	if (ret < 0) {
		cannot_start(o, "the keeper cannot watch its parent: %s", strerror(-ret));
		return ret;
	}
	ret = configwatch_start(k);
	if (ret < 0) {
		cannot_start(o, "the keeper cannot start: %s", strerror(-ret));
		return ret;
	}
	if (take_up(k, o) < 0)
		return -EIO;
	ret = host_start(k);
	if (ret == 0)
		ret = sessions_start(k);
	if (ret < 0)
		cannot_start(o, "%s: the keeper cannot serve: %s", o->runtime_dir, strerror(-ret));
	return ret;
}

/* --- one run --- */

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void clean_up(struct keeper *k)
{
	struct lease *lease, *next;
	struct file *file, *next_file;
	struct life *life = life_of(k);
	sigset_t signals;

	/* A second SIGTERM would look to the parent as if the keeper had died. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	keeper_enter(k);
	orphan_close(k);
	host_stop(k);
	room_stop(k);
	ending_close(k);
	configwatch_close(k);
	uv_close((uv_handle_t *)&life->alive, NULL);
	uv_close((uv_handle_t *)&k->old_pins, NULL);
	uv_run(k->loop, UV_RUN_DEFAULT); /* until probes and workers have ended: no timer or socket is left */
	HASH_ITER (hh, k->leases, lease, next) {
		free(lease->blockers);
		answers_forget(lease);
		lease_free(lease);
	}
	HASH_ITER (hh, k->files, file, next_file)
		file_put(file);
	fronts_free(k->fronts); /* before the loop runs again: nothing may come of what is freed */
	uv_run(k->loop, UV_RUN_DEFAULT); /* workers have closed what is not on local file systems */
	probes_free(k->probes);
	workers_free(k->workers);
	mounts_free(k->mounts);
	table_text_close(k->table);
	pagefile_close(k->page);
	uv_walk(k->loop, close_handle, NULL);
	uv_run(k->loop, UV_RUN_DEFAULT);
	uv_loop_close(k->loop);
	config_free(k->config);
	free(k->configfile.text);
}

int keeper_run(const struct keeper_options *options)
{
	struct life life = {.options = options};
	struct keeper *k = &life.k;

	signal(SIGPIPE, SIG_IGN);
	k->system = geteuid() == 0 && strcmp(options->runtime_dir, "/run/dflock") == 0;
	life.door = k->system ? door_start() : -1; /* while there are no threads, and nothing to inherit */
	uv_loop_init(&life.loop);
	k->loop = &life.loop;
	k->listen_fd = k->spare_fd = -1;
	k->dir_fd = options->dir_fd;
	k->options = options;
	k->table = options->table;
	k->started = time(NULL);
	snprintf(k->runtime_dir, sizeof(k->runtime_dir), "%s", options->runtime_dir);
	if (start(&life) < 0)
		return KEEPER_EXIT_CONFIG; /* the process ends: no need to take it apart */
	log_info("version " DFLOCK_VERSION " serves %s as host %s (%s, %zu rules)", k->runtime_dir, k->host,
		 k->config->path, k->config->rule_count);
	if (options->ready_fd >= 0)
		close(options->ready_fd);
	uv_run(k->loop, UV_RUN_DEFAULT);
	clean_up(k);
	return KEEPER_EXIT_IDLE;
}
