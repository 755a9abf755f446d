/*
 * keeper/callers/deadlock.c: one search at a time, of the processes that wait, for the chases that still count; and rules/chases.c: each chase
 * is followed once in a given time, and not too many of them.
 */
#include "keeper/callers/deadlock.h"

#include <utlist.h>

#include "keeper/callers/session.h"
#include "keeper/kernel/holders.h"
#include "keeper/kernel/workers.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/rules/chases.h"
#include "tests/unit/suite.h"

static struct keeper k;
static struct table table; /* no call is under way */
static struct sessions sessions;
static struct session waits;
static struct file file;
static struct lease held, asking;
static struct store_blocker blocker = {.host = "b-2"};
static struct work *running;
static unsigned searches, sent;
static struct store_chase told; /* the last that was sent */
static unsigned waiting;        /* processes, each of which holds what is searched for */

int workers_start(struct workers *workers, uint64_t dev, struct work *work)
{
	ck_assert_ptr_null(running);
	running = work;
	return 0;
}

int holders_search(struct holders_search *ask)
{
	ck_assert_uint_eq(ask->pid_count, waiting);
	ck_assert_int_eq(ask->pids[0], waits.peer.pid);
	searches++;
	for (unsigned i = 0; i < waiting; i++)
		ck_assert_int_eq(ask->cb(ask->arg, &(struct holder){.pid = ask->pids[i],
								    .space = WIRE_RECORD,
								    .owner = WIRE_OWNER_PROCESS,
								    .mode = WIRE_EXCLUSIVE,
								    .to = WIRE_EOF}),
				 0);
	return 0;
}

int procfs_waits(procfs_lock_cb *cb, void *arg) { ck_abort_msg("no call waits in the kernel"); }

struct file *file_find(struct keeper *of, uint64_t dev, uint64_t ino)
{
	return dev == file.key.dev && ino == file.key.ino ? &file : NULL;
}

struct file *file_find_by_id(struct keeper *of, uint64_t dev, uint64_t ino) { return file_find(of, dev, ino); }

struct holders_file file_searched(const struct file *of)
{
	return (struct holders_file){.dev = of->key.dev, .ino = of->key.ino};
}

struct lease *lease_find(struct keeper *of, const char *token) { return NULL; }

bool range_overlaps(const struct store_range *a, const struct store_range *b)
{
	return a->from < b->to && b->from < a->to;
}

int64_t deadline_reask_ms(const struct keeper *of) { return 60000; }
bool session_has_hung_up(const struct session *s) { return false; }
void session_reply(struct session *s, enum wire_verdict verdict, const char *reason, int fd) {}

void store_tell(struct store *s, const char *host, const struct store_message *m)
{
	ck_assert_int_eq(m->kind, STORE_MSG_CHASE);
	ck_assert_str_eq(host, blocker.host);
	told = m->chase;
	sent++;
}

void queue_settle(struct keeper *of) {}

/* A process of this host holds the file's first hundred bytes, waits for another host, and was the tenth to wait. */
static void setup(void)
{
	running = NULL;
	searches = sent = 0;
	k = (struct keeper){.member_count = 1, .members[0].keeper = &k, .table = &table, .sessions = &sessions};
	file = (struct file){.keeper = &k, .member = &k.members[0], .key = {.dev = 1, .ino = 2}, .name = "t/f"};
	file.locks[WIRE_RECORD] = (struct lock){.file = &file, .space = WIRE_RECORD};
	HASH_ADD(hh, k.files, key, sizeof(file.key), &file);
	held = (struct lease){
		.lock = &file.locks[WIRE_RECORD], .state = LEASE_OPEN, .range = {.space = WIRE_RECORD, .to = 100}};
	DL_APPEND(file.locks[WIRE_RECORD].leases, &held);
	asking = (struct lease){.lock = &file.locks[WIRE_RECORD],
				.state = LEASE_ASKING,
				.asking = {.blockers = &blocker, .blocker_count = 1}};
	waits = (struct session){.keeper = &k,
				 .state = SESSION_WAITING,
				 .peer.pid = 7,
				 .request = {.op = WIRE_LOCK, .space = WIRE_RECORD, .owner = WIRE_OWNER_PROCESS},
				 .waiter = {.lease = &asking, .arrival = 10}};
	sessions = (struct sessions){0};
	DL_APPEND(sessions.all, &waits);
	waiting = 1;
	ck_assert_int_eq(deadlock_init(&k), 0);
}

static void teardown(void)
{
	HASH_CLEAR(hh, k.files);
	deadlock_free(&k);
}
FIXTURE(setup, teardown)

/* A call of another host, which was the youngest-th to wait, wants the bytes from here on. */
static void chased(uint64_t youngest, int64_t from)
{
	struct store_message m = {
		.name = "t/f",
		.chase = {.host = "b-2",
			  .token = "00",
			  .pid = 9,
			  .youngest = youngest,
			  .range = {.space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE, .from = from, .to = 1000}}};
	deadlock_message(&k, &m);
}

static void finish(void)
{
	struct work *work = running;
	work->run(work);
	running = NULL;
	work->done(work);
}

TEST(those_that_come_meanwhile_share_the_next_one)
{
	chased(11, 0);
	for (int64_t i = 1; i <= 20; i++)
		chased(11, i);
	finish();
	ck_assert(searches == 1 && sent == 1);
	finish();
	ck_assert(searches == 2 && sent == 21);
	ck_assert_ptr_null(running);
}

TEST(no_search_where_no_process_can_be_in_a_cycle)
{
	chased(9, 0); /* the process has begun to wait later: its own chase counts */
	ck_assert_ptr_null(running);
	waits.state = SESSION_READING;
	chased(11, 0);
	ck_assert_ptr_null(running);
}

TEST(what_is_over_is_dropped)
{
	chased(11, 100); /* these bytes are not this host's */
	ck_assert_ptr_null(running);
	chased(11, 0);
	chased(11, 1);
	held.state = LEASE_RELEASING;
	finish();
	ck_assert_ptr_null(running);
	held.state = LEASE_OPEN;
	chased(11, 2);
	waits.state = SESSION_READING; /* it waits no more: the chase ends with it */
	finish();
	ck_assert(searches == 2 && sent == 1);
}

TEST(one_message_for_all_that_wait_for_one_lease)
{
	struct session others[3];

	for (int i = 0; i < 3; i++) {
		others[i] = waits;
		others[i].peer.pid = 8 + i;
		DL_APPEND(sessions.all, &others[i]);
	}
	waiting = 4;
	chased(11, 0);
	chased(11, 1);
	chased(11, 2);
	finish();
	ck_assert_uint_eq(sent, 1);
	finish();
	ck_assert_uint_eq(sent, 3); /* each of the two that came meanwhile */
	ck_assert_ptr_null(running);
}

/* --- chases --- */

#define FOR 1000

static const struct store_chase one = {.host = "a-1",
				       .token = "0123",
				       .pid = 7,
				       .youngest = 5,
				       .range = {.mode = WIRE_EXCLUSIVE, .from = 10, .to = 20}};
static struct chases chases;

static bool follow(const struct store_chase *chase, int64_t now)
{
	return chases_follow(&chases, chase, 1, 2, now, FOR);
}

/* What it finds depends on the other fields, and not on how many hops it took. */
TEST(a_chase_is_followed_once_in_a_time)
{
	struct store_chase other = one;

	ck_assert(follow(&one, 100));
	other.hops = 9;
	ck_assert(!follow(&other, 100));
	ck_assert(!follow(&one, 100 + FOR - 1));
	ck_assert(follow(&one, 100 + FOR));
	ck_assert(!follow(&one, 100 + FOR));
	for (int field = 0; field < 7; field++) {
		other = one;
		other.youngest += field == 0;
		other.pid += field == 1;
		other.host[0] += field == 2;
		other.token[0] += field == 3;
		other.range.from += field == 4;
		other.range.to += field == 5;
		other.range.mode = field == 6 ? WIRE_SHARED : WIRE_EXCLUSIVE;
		ck_assert(follow(&other, 100 + FOR));
	}
	ck_assert(chases_follow(&chases, &one, 2, 2, 100 + FOR, FOR));
	ck_assert(chases_follow(&chases, &one, 1, 3, 100 + FOR, FOR));
}

TEST(a_storm_of_chases)
{
	struct store_chase chase = one;
	int followed = 0;

	chases = (struct chases){0};
	for (int i = 0; i < 100000; i++) {
		chase.pid = i;
		followed += follow(&chase, 1);
	}
	ck_assert_int_eq(followed, CHASES_SEEN);
	ck_assert(follow(&one, 1 + FOR));
}

TEST(each_call_of_a_crowd_has_its_turn)
{
	const int crowd = 1000;
	bool last = false;

	chases = (struct chases){0};
	sessions.waiting[WIRE_RECORD] = crowd;
	for (int time = 1; time < 1000 && !last; time++)
		for (int pid = 1; pid <= crowd; pid++) {
			unsigned before = sent;

			waits.peer.pid = pid;
			deadlock_chase(&waits);
			if (sent != before && follow(&told, time * FOR))
				last = pid == crowd;
		}
	ck_assert(last);
}
