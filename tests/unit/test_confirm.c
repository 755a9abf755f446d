/*
 * keeper/leases/confirm.c: which questions about unsure leases are sent and when, and what an answer means that is late, or too
 * old. Queue and leases are real; the store, the deadline and the table are here.
 */
#include "keeper/leases/confirm.h"

#include <utlist.h>

#include "keeper/leases/awaited.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"
#include "tests/unit/said.h"
#include "tests/unit/suite.h"

#define AT_ONCE 64
#define MANY    (AT_ONCE + 6)

static uv_loop_t loop;
static struct keeper k;
static struct file *file;
static struct lock *lock;

/* The questions that the store has not answered, the oldest first. */
static struct question {
	store_reply_cb *cb;
	struct awaited *awaited;
} asked[MANY];
static size_t asked_count;
static int64_t renewed_by; /* when the answered question was sent */
static bool expires;       /* the deadline passes before the answer is handled */

static void note_question(store_reply_cb *cb, void *arg)
{
	ck_assert_uint_lt(asked_count, MANY);
	asked[asked_count++] = (struct question){.cb = cb, .awaited = arg};
}

void store_confirm(struct store *s, const char *name, const char *token, uint64_t fence, store_reply_cb *cb, void *arg)
{
	ck_assert_str_eq(name, "x");
	ck_assert_str_eq(token, ((struct awaited *)arg)->lease->token);
	ck_assert_uint_eq(fence, 7);
	say("confirm");
	note_question(cb, arg);
}

void store_reclaim(struct store *s, const char *name, const char *inode, const char *token, uint64_t fence,
		   const struct store_range *range, const char *key, store_reply_cb *cb, void *arg)
{
	ck_assert_str_eq(name, "x");
	ck_assert_str_eq(inode, file->inode);
	ck_assert_str_eq(token, ((struct awaited *)arg)->lease->token);
	ck_assert_uint_eq(fence, 7);
	ck_assert_int_eq(range->mode, WIRE_EXCLUSIVE);
	ck_assert_ptr_null(key);
	say("reclaim");
	note_question(cb, arg);
}

void deadline_notice(struct keeper *keeper) { keeper->members[0].deadline.expired |= expires; }

void deadline_renewed(struct member *keeper, int64_t sent_ns)
{
	renewed_by = sent_ns;
	say("renewed");
}

void deadline_given_up(struct member *keeper, uint64_t mark)
{
	ck_assert_uint_eq(mark, 77);
	say("given up");
}

static unsigned confirmed; /* the deadline heard of so many answers */
void deadline_confirmed(struct member *keeper, enum store_status status) { confirmed++; }

void table_confirm(struct table *table, uint32_t slot)
{
	ck_assert_uint_eq(slot, 5);
	say("table");
}

void log_event(enum event_kind kind, const char *format, ...) {}
void log_debug(const char *format, ...) {}

void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...)
{
	ck_assert_int_eq(kind, LINE_STORE_REFUSED);
	ck_assert_ptr_nonnull(about->lock);
	say("logged");
}

static void on_step(struct lease *lease, enum lease_cue event)
{
	if (event == LEASE_CUE_STANDS)
		lease->state = LEASE_OPEN;
	say(lease_cue_name(event));
}

static void on_nothing(struct keeper *keeper) {}
static unsigned on_reap(struct keeper *keeper) { return 0; }

static void prepare(void)
{
	static struct config config;
	static const struct queue_work work = {.step = on_step, .send = confirm_send_waiting, .reap = on_reap};
	static const struct queue_news news = {.leases_freed = on_nothing};
	const struct stat st = {.st_dev = 1, .st_ino = 2};

	uv_loop_init(&loop);
	k = (struct keeper){.member_count = 1,
			    .members[0].keeper = &k,
			    .loop = &loop,
			    .config = &config,
			    .queue = {.work = &work, .news = &news}};
	ck_assert_int_eq(file_get(&k.members[0], &st, true, "/srv/x", "x", -1, &file), 0);
	lock = &file->locks[WIRE_FLOCK];
	asked_count = 0;
	said[0] = '\0';
	expires = false;
}

static void clean(void)
{
	struct lease *lease, *next;

	ck_assert_uint_eq(k.members[0].confirms.sent, asked_count);
	for (size_t i = 0; i < asked_count; i++)
		free(asked[i].awaited);
	HASH_ITER (hh, k.leases, lease, next)
		lease_free(lease);
	file_free(file);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
FIXTURE(prepare, clean)

static struct lease *lease_in(enum lease_state state)
{
	const struct store_range all = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	struct lease *lease = lease_new(lock, &all, 0);
	ck_assert_ptr_nonnull(lease);
	lease_set_state(lease, state);
	lease->slot = 5;
	lease->fence = 7;
	return lease;
}

static void ask(struct lease *lease)
{
	lease_send_confirm(lease);
	queue_settle(&k);
}

/* The store answers the oldest question. */
static void answer(enum store_status status, enum wire_mode mode)
{
	const struct question q = asked[0];
	const int64_t sent_ns = q.awaited->sent_ns;

	ck_assert_uint_gt(asked_count, 0);
	memmove(asked, asked + 1, --asked_count * sizeof(*asked));
	renewed_by = sent_ns;
	confirmed = 0;
	q.cb(q.awaited, &(struct store_reply){.status = status, .mode = mode, .arrival = 77, .error = "no"});
	ck_assert_int_eq(renewed_by, sent_ns);
	ck_assert_uint_eq(confirmed, 1);
}

static const struct {
	enum lease_state state;
	enum wire_mode mode; /* that the store says */
	const char *said;
} answers[] = {
	{LEASE_UNSURE, WIRE_EXCLUSIVE, "confirm, table, renewed, stands"},
	/* It was to be shrunk, and the store has it as it was; or the other way round. */
	{LEASE_UNSURE, WIRE_SHARED, "confirm, table, renewed, unshrunk"},
	/* The last of those that are forgotten stands before the time of all leases is moved on. */
	{LEASE_FORGOTTEN, WIRE_EXCLUSIVE, "reclaim, table, stands, renewed"},
};

TEST_EACH(it_stands, ROWS(answers))
{
	struct lease *lease = lease_in(answers[_i].state);
	ask(lease);
	answer(STORE_OK, answers[_i].mode);
	check_said(answers[_i].said);
	ck_assert_uint_eq(lease->requests, 0);
}

static const struct {
	enum store_status status;
	const char *said, *again;
	bool later; /* it is asked again by its timer; else the next connection asks, or nobody */
} others[] = {
	{STORE_GONE, "confirm, gone", "confirm, gone", false},
	{STORE_UNREACHABLE, "confirm", "confirm", false},
	{STORE_GIVEN_UP, "confirm, given up", "confirm, given up",
	 true},                                            /* behind the beat that says that this host has heard */
	{STORE_ERROR, "confirm, logged", "confirm", true}, /* it is logged once */
};

TEST_EACH(other_answers, ROWS(others))
{
	struct lease *lease = lease_in(LEASE_UNSURE);

	ask(lease);
	answer(others[_i].status, 0);
	check_said(others[_i].said);
	ck_assert_int_eq(uv_is_active((uv_handle_t *)&lease->timer), others[_i].later);
	ask(lease);
	answer(others[_i].status, 0);
	check_said(others[_i].again);
	ck_assert_uint_eq(lease->requests, 0);
}

/* It stood when the store was asked; since then the deadline has passed, and another host may have had it. */
TEST(answered_after_the_deadline)
{
	struct lease *lease = lease_in(LEASE_UNSURE);

	ask(lease);
	expires = true;
	answer(STORE_OK, WIRE_EXCLUSIVE);
	check_said("confirm, table, renewed, confirm");
	ck_assert_int_eq(lease->state, LEASE_UNSURE);
	expires = k.members[0].deadline.expired = false;
	answer(STORE_OK, WIRE_EXCLUSIVE);
	check_said("table, renewed, stands");
}

static const struct {
	enum store_status status;
	const char *said;
} meanwhile[] = {{STORE_OK, "renewed, confirm"},
		 {STORE_GONE, "confirm"},
		 {STORE_ERROR, "confirm"},
		 {STORE_GIVEN_UP, "given up, confirm"}};

/* What it is asked about has changed meanwhile: the answer is too old, whatever it says, but for the host's time. */
TEST_EACH(asked_again_meanwhile, ROWS(meanwhile))
{
	struct lease *lease = lease_in(LEASE_UNSURE);

	ask(lease);
	ask(lease);
	ask(lease);
	check_said("confirm");
	answer(meanwhile[_i].status, WIRE_EXCLUSIVE);
	check_said(meanwhile[_i].said);
	answer(STORE_OK, WIRE_EXCLUSIVE);
	check_said("table, renewed, stands");
	ck_assert_uint_eq(lease->requests + asked_count, 0);
}

/* Then there is nothing to ask about. */
TEST(not_unsure_any_more)
{
	struct lease *lease = lease_in(LEASE_UNSURE);

	lease_send_confirm(lease);
	lease_set_state(lease, LEASE_RELEASING);
	queue_settle(&k);
	check_said("");
	lease_set_state(lease, LEASE_UNSURE);
	ask(lease);
	lease_set_state(lease, LEASE_RELEASING);
	lease_send_confirm(lease);
	answer(STORE_OK, WIRE_EXCLUSIVE);
	check_said("confirm, renewed, stands"); /* which a lease that goes back ignores; and not into the table */
	ck_assert_uint_eq(lease->requests + asked_count, 0);
}

TEST(a_few_at_a_time_in_their_order)
{
	struct lease *all[MANY];

	for (int i = 0; i < MANY; i++) {
		all[i] = lease_in(LEASE_UNSURE);
		lease_send_confirm(all[i]);
	}
	queue_settle(&k);
	ck_assert_uint_eq(asked_count, AT_ONCE);
	for (int i = 0; i < MANY; i++) {
		said[0] = '\0';
		ck_assert_ptr_eq(asked[0].awaited->lease, all[i]);
		answer(STORE_OK, WIRE_EXCLUSIVE);
		check_said(i < MANY - AT_ONCE ? "table, renewed, stands, confirm" : "table, renewed, stands");
		ck_assert_int_eq(all[i]->state, LEASE_OPEN);
	}
	ck_assert_uint_eq(asked_count, 0);
}
