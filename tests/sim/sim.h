/*
 * The simulator: several hosts in one process, with the keeper's, its parent's and the shim's own code, the store's own
 * rules, and the real kernel's locks. Only what decides when something happens is not real:
 *
 *   schedule.c  time, the queue of events, random numbers, tasks
 *   clocks.c    clocks, pids, signals; the points at which a process may be suspended or die
 *   loop.c      libuv's loop and timers; loop_events.c: polls, workers, signals
 *   kernel.c    the probes' threads (keeper/kernel/probe.h)
 *   net.c       the network: delays, losses; link.c: the client's end (store/redis/link.h)
 *   server.c    the server: runs the scripts, has its own clock and identity
 *   host.c      a host's life: keeper, parent, crash, reboot
 *   folders.c   what is made before a run: folders, files, configurations
 *   stopping.c  which programs hold locks and are stopped (keeper/kernel/holders.h, stopped.h, family.h)
 *   program.c   programs that lock
 *   caught.c    programs under the net: their supervisors, and who sees them out of a call (keeper/kernel/seeout.h)
 *   ask.c       the shim's socket and page (shim/ask.h, protect.h)
 *   lock.c      the shim's kernel calls (shim/real.h)
 *   faults.c    which faults happen, and when
 *   check.c     what must hold after every step, and at the end
 *   main.c      runs seeds
 *
 * Every piece of foreign code runs as a task with a stack of its own, and gives control back to the scheduler where the
 * real one would wait, and now and then where it would not (a process may lose the processor anywhere). Two runs with
 * the same seed are the same, to the last event. Each entity draws its random numbers from a sequence of its own, so
 * that a seed goes on to mean about the same when something elsewhere changes.
 */
#ifndef DFLOCK_TESTS_SIM_H
#define DFLOCK_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/leases/keeper.h"

#define MS  INT64_C(1000000)
#define SEC (1000 * MS)

#define SIM_TTL_MS 3000 /* of every host's configuration */

/* --- schedule.c --- */

struct rng {
	uint64_t state;
};
uint64_t rng_next(struct rng *rng);
int64_t rng_between(struct rng *rng, int64_t from, int64_t to); /* from <= result < to */
bool rng_chance(struct rng *rng, unsigned per_mille);
/* The sequence of one entity in this run. */
struct rng rng_of(const char *kind, uint64_t number);
/* How long a short thing takes: mostly next to nothing, now and then much more, at most `most`. */
int64_t rng_delay(struct rng *rng, int64_t most);

extern int64_t sim_now; /* ns; the true time, which no host can see */
extern uint64_t sim_seed;
extern uint64_t *sim_digest; /* hash of the times of all events, in their order: the schedule */
typedef void sim_fn(void *arg, uint64_t number);
void sim_at(int64_t when, sim_fn *fn, void *arg, uint64_t number);
void sim_after(int64_t ns, sim_fn *fn, void *arg, uint64_t number);
/* Runs events until done() or until the time; false: the time came first. */
bool sim_run(bool (*done)(void), int64_t until);

void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Something that must hold does not: ends the run. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
extern bool sim_tracing;
/* Memory that is all zero; without it there is no simulation. */
void *sim_new(size_t bytes);

struct host;
struct task;
/* Runs main(arg) on a stack of its own when it is resumed. host: the task sees this host's clock. A task is never freed
 * by itself. */
struct task *task_new(struct host *host, struct rng *rng, void (*main)(void *arg), void *arg);
void task_free(struct task *task); /* for a task that does not run now; it never runs again */
void task_resume(struct task *task);
void task_yield(void); /* back to the scheduler, until the task is resumed */
bool task_ended(const struct task *task);
extern struct task *task_now; /* NULL: the scheduler */
struct host *task_host(const struct task *task);
struct rng *task_rng(const struct task *task);

/* --- host.c --- */

#define SIM_HOSTS 4
#define SIM_FILES 3 /* of each host; the last one is a second inode under the first one's name */
#define SIM_NAMES 2

struct item {
	void (*fn)(void *arg, uint64_t number);
	void *arg;
	uint64_t number;
	struct item *prev, *next;
};

struct host {
	int id;
	struct rng rng, parent_rng;
	char dir[96], run[128], config[128];
	char files[SIM_FILES][128];
	int dir_fd;

	bool up;       /* the machine runs */
	unsigned boot; /* counts up */
	double rate;   /* of its clock */
	int64_t clock_base;

	struct task *keeper; /* NULL: none runs */
	unsigned life;       /* of the keeper; counts up */
	bool idle;           /* it waits in uv_run() */
	bool paused;         /* it was suspended in the middle of something */
	bool ending;         /* its loop has ended once: it cleans up */
	bool crashing;       /* at the next crash point */
	int crash_countdown;
	int64_t stopped_until; /* SIGSTOP */
	int exit_status;
	bool kicked;
	struct item *inbox;
	struct keeper *k;

	struct task *parent;
	struct table table;      /* the keeper and its parent share it as two processes share the memory */
	const struct page *page; /* as programs see it */
	int parent_pipe[2];
	struct freeze *freezer;
	bool starting, notified, parent_sleeps;
	bool orphaned; /* the parent was killed, and the next one does not watch yet */
	uint64_t parent_nap;
	int64_t parent_busy_until; /* others have the processor: it does not run */

	int64_t cut_up_until, cut_down_until; /* nothing gets through to the server, or from it */
	unsigned works;                       /* of the loop's pool, under way */
	int64_t disturbed[2];    /* when its keeper died, or its connections broke, last: first the older */
	unsigned frozen, killed; /* programs, by the parent, ever; but see host_disturb() */
};
extern struct host sim_hosts[SIM_HOSTS];
extern struct host *sim_starting; /* whose table is opened, which no task does; NULL */
extern int sim_host_count;

void hosts_prepare(const char *dir); /* once per process: folders, files, configurations */
void hosts_start(int count);
void host_boot(struct host *host); /* the machine starts, with a keeper */
void host_die(struct host *host);  /* the machine stops, with all that runs there */
/* Something keeps it from renewing its leases for a while. Twice within a ttl may be too much, and programs that are
 * frozen then are not counted. */
void host_disturb(struct host *host);
bool host_is_disturbed(const struct host *host);
void host_kill_keeper(struct host *host, const char *why); /* SIGKILL; its parent starts another one */
void host_notify_parent(struct host *host);
/* SIGKILL to the parent: the keeper notices, makes room, and another pair starts. */
void host_kill_parent(struct host *host);
int64_t host_dead_ms(void); /* as configured in this run */
#define SIM_SHARDS 2        /* the names a and b are in one each */
unsigned host_shards(void); /* the same: 1 or SIM_SHARDS */
/* at_least_ms of the rule of this lock name; 0: it has none. */
int64_t host_at_least_ms_of(const char *name);
pid_t host_parent_pid(const struct host *host);
const struct page *host_page(struct host *host);
/* Does the keeper still run that had this life? */
static inline bool host_lives(const struct host *host, unsigned life) { return host->keeper && host->life == life; }
/* A host's CLOCK_BOOTTIME; and when its clock will have gone on by so much. */
int64_t host_clock(const struct host *host);
int64_t host_after(const struct host *host, int64_t own_ns);
/* Adds an item for the keeper's loop. Dropped with the keeper. */
void host_post(struct host *host, sim_fn *fn, void *arg, uint64_t number);
/* The keeper's task is suspended for so long, in the middle of what it does. */
void host_pause(struct host *host, int64_t ns);

/* --- clocks.c --- */
/* The keeper is about to send something: it may be suspended here, or die. */
void host_write_point(const struct host *host);
/* A thread of the keeper is at such a place, whatever its task does. True: the keeper died. */
bool host_dies_here(struct host *host);

/* --- loop.c --- */
void loop_drop(struct host *host); /* the keeper has crashed */
void loop_poll(struct host *host); /* something may have become readable */
void loop_signal(struct host *host, int number);
bool is_readable(int fd);

/* --- net.c, server.c --- */
void net_drop(struct host *host);    /* its process is gone: the kernel closes its connections */
void net_silence(struct host *host); /* its machine is gone, without a word to the server */
void net_reset_all(void);            /* the server has gone */
void net_reset(struct host *host);   /* all of the host's connections break */
void net_look(void);                 /* a cut was made or healed */
void net_publish(const char *channel, size_t channel_len, const char *text, size_t len);
#define NET_LATEST (12 * SEC) /* requests on a connection that has been given up since may come so much later */
extern unsigned net_loss;     /* per mille of published messages that are lost */
extern bool net_slow;         /* packets take long, now and then */
extern bool server_up;
extern int64_t server_stopped_until, server_shard_stopped_until[SIM_SHARDS];
/* All that one shard has is gone. */
void server_flush_shard(unsigned shard);

struct redisReply;
/* Runs one command. The caller frees the answer. */
struct redisReply *server_execute(int argc, char **argv);
void server_start(void);
void server_new_identity(void);
void server_flush(void);
void server_save(void);    /* a snapshot is taken */
void server_restore(void); /* the store has what the snapshot has, and nothing else */
void server_set_clock(int64_t wrong_by_ns);
void server_expect_empty(void);
void server_describe(void);

/* --- kernel.c --- */
void kernel_changed(struct host *host); /* a kernel lock was let go of: waiting probes look again */
void kernel_drop(struct host *host);    /* the keeper has crashed, with its probes */

/* --- program.c --- */

enum program_state { PROGRAM_IDLE, PROGRAM_CALLING, PROGRAM_HOLDING, PROGRAM_ENDED };

struct program {
	int id;
	struct host *host;
	unsigned boot;
	struct rng rng;
	struct task *task;
	enum program_state state;
	pid_t pid;
	int fd, sock;
	int file;                 /* of the host */
	struct store_range held;  /* PROGRAM_HOLDING */
	struct store_range wants; /* PROGRAM_CALLING */
	int rounds;
	bool busy;           /* goes on until no fault happens any more */
	bool faithful;       /* tries again until it has had its turns */
	bool frozen, wakes;  /* wakes: an event came while it was frozen */
	bool receives;       /* waits for the keeper's answer */
	bool waits_for_lock; /* in the kernel */
	bool caught;         /* under the net: caught.c; the next three are that file's */
	bool in_call;        /* from the question to the return of the call */
	bool in_window; /* the kernel goes on with it, and it has not tried to lock so far: neither a signal nor a stop gets through */
	bool called_back; /* it is to begin anew, if it waits */
	bool left;        /* ... and a stop has ended its wait */
	uint64_t number;  /* of its present call */
	bool converts;
	bool final; /* checks at the end whether this one lock can be taken */
	bool interrupted;
	uint64_t nap; /* the wake-up that it waits for */
	unsigned grants, refusals;
};
#define SIM_PROGRAMS 48
extern struct program sim_programs[SIM_PROGRAMS];
extern int sim_program_count;

void programs_start(int count);
void programs_finish(void); /* programs that check at the end whether every lock can be taken */
bool programs_ended(void);
void program_kill(struct program *program, const char *why);
void program_freeze(struct program *program, bool frozen);
void program_wake(struct program *program, uint64_t nap);
bool program_wait_for_lock(struct program *program); /* in the kernel; false: a signal came */
void programs_look_again(struct host *host);         /* a lock was let go */
void programs_answered(struct host *host);           /* the keeper may have said something */
const char *program_file_name(int file);             /* the lock name */
/* Suspends the running program's task for so long (or until it is woken). */
#define PROGRAM_FOREVER INT64_MAX
void program_sleep(struct program *program, int64_t ns);
struct program *program_of_task(void);
struct program *program_of_pid(pid_t pid); /* NULL: none */

/* --- caught.c, ask.c --- */
struct ask;
struct intent;
struct protect_by;
struct wire_request;
int caught_call(struct program *program, const struct intent *want);
struct protect_by sim_by(const struct host *host); /* which keeper a program of the host asks */

/* --- faults.c --- */
void faults_plan(void);

/* --- operator.c --- */
void operator_plan(void);               /* after faults_plan() */
bool operator_broke(const char *token); /* was that lease to be taken away, in this run? */
extern bool faults_mild;                /* no fault keeps a host from renewing: no program may be frozen or killed */
extern int64_t faults_end;              /* from then on no fault happens any more */
extern const char *faults_drop;         /* "f0,f3,p1": faults and programs that are left out */
bool faults_dropped(char kind, int number);
unsigned faults_hiccups(void); /* per mille of points at which a process loses the processor */

/* --- check.c --- */
void check_step(void); /* after every event */
void check_lock(const char *name, const struct redisReply *leases, const struct redisReply *waiters,
		const char *pass_token, bool puts_back);
void check_forget(int shard);                       /* it was changed by a fault; -1: all of the store */
void check_clock_stepped(void);                     /* that of the server */
void check_new_lock(const struct program *program); /* it has a lock that it did not have before its call */
void check_end(void);
void check_describe(void);
const char *check_range(const struct store_range *range); /* for a line: valid until two more were asked for */

/* --- stopping.c --- */
void stopping_forget(struct host *host); /* its parent is gone */

/* --- lives.c: what happens to leases and calls, as events of the models, for docs/model/replay.py --- */

/* From now on each life is a line of this file (appended). -1: it cannot be opened. Without it the others do nothing. */
int lives_open(const char *path);
void lives_store(struct host *host, const void *at, uint64_t value); /* the keeper has stored it, perhaps into a slot */
void lives_keeper(struct host *host, char event);                    /* X: it is dead; K: one is about to start */
void lives_cut(struct host *host);                                   /* a parent dies, which the model has not */
void lives_forget(struct host *host);                                /* the table is gone with its machine */
/* A program begins a call; something has happened to it in there. 0: the models have nothing of the kind. */
void lives_begin(const struct program *program, bool nonblock);
void lives_call(const struct program *program, char event);
/* A probe in the flock space, on this descriptor of the keeper's. */
void lives_probe(struct host *host, int fd, bool shared_will_do, char event);
/* Somebody has stored it, perhaps into an entry of a call under way. */
void lives_entry(const struct host *host, const void *at, uint64_t value);
void lives_end(void); /* of a run */

#endif
