/* keeper/leases/survey.h: questions that wait share one census; each sees the locks of its own claims. Made-up locks. */
#include "keeper/leases/survey.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

#include "keeper/kernel/census.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"
#include "tests/unit/suite.h"

#define COUNT 3

static const struct holders_file files[COUNT] = {{.dev = 1, .ino = 1}, {.dev = 1, .ino = 2}, {.dev = 1, .ino = 3}};
static struct survey surveys[COUNT + 1];
static unsigned rows[COUNT + 1], done[COUNT + 1];
static unsigned searches, again;
static bool endless; /* a search ends by its turns, or with the test */
static atomic_bool begun, ended;
static uv_loop_t loop;
static struct keeper k;

void queue_settle(struct keeper *keeper) {}

/* One process has a lock on all of each file. */
int census_take(const struct claims *claims, struct holders_search *ask)
{
	searches++;
	for (atomic_store(&begun, true); endless;) {
		if (ask->turn(ask->arg))
			return -ETIME;
		if (atomic_load(&ended))
			return 0;
		sched_yield();
	}
	for (size_t i = 0; i < claims->file_count; i++)
		ck_assert_int_eq(ask->cb(ask->arg, &(struct holder){.file = i, .pid = 5, .to = WIRE_EOF}), 0);
	return 0;
}

static int on_row(struct survey *s, const struct holder *h)
{
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while ((claim = survey_claim(s, h, &next))) {
		ck_assert_uint_eq(claim->tag, (uint64_t)(s - surveys));
		rows[s - surveys]++;
	}
	return 0;
}

static void ask(size_t i);

static void on_done(struct survey *s)
{
	done[s - surveys]++;
	if (again == (unsigned)(s - surveys) + 1) {
		again = 0;
		ask(COUNT); /* during its search: it is a question of the next one */
	}
}

static void ask(size_t i)
{
	surveys[i] = (struct survey){.lazy = i == 2, .patient = i == 1, .row = on_row, .done = on_done};
	ck_assert_int_eq(claims_add(&surveys[i].claims, &files[i % COUNT], WIRE_FLOCK, 0, WIRE_EOF, i), 0);
	ck_assert_int_eq(survey_ask(&k, &surveys[i]), 0);
	ck_assert_uint_eq(done[i], 0); /* later */
}

static void setup(void)
{
	memset(rows, 0, sizeof(rows));
	memset(done, 0, sizeof(done));
	searches = again = 0;
	endless = false;
	begun = ended = false;
	uv_loop_init(&loop);
	k = (struct keeper){.member_count = 1, .members[0].keeper = &k, .loop = &loop};
	survey_start(&k);
}

static void teardown(void)
{
	if (!k.surveys.stopped)
		survey_stop(&k);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
FIXTURE(setup, teardown)

TEST(one_search_for_all_that_wait)
{
	again = 1;
	ask(0);
	ask(1);
	uv_run(&loop, UV_RUN_DEFAULT);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(done[i], 1);
		ck_assert_uint_eq(rows[i], 1);
		ck_assert_int_eq(surveys[i].error, 0);
	}
	ck_assert_uint_eq(done[COUNT], 1);
	ck_assert_uint_eq(searches, 2);
}

TEST(a_lazy_question_delays_no_other)
{
	ask(2);
	ask(0);
	while (!done[0])
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(searches, 1);
	ck_assert_uint_eq(done[2], 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(done[2], 1);
	ck_assert_uint_eq(rows[2], 1);
	ck_assert_uint_eq(searches, 2);
}

static void on_too_late(uv_timer_t *timer) { atomic_store(&ended, true); }

/* A lazy search beside very many descriptors, and then a question: also one that waits for long itself. */
TEST_EACH(a_lazy_search_ends_for_any_other_question, 2)
{
	uv_timer_t late;

	endless = true;
	uv_timer_init(&loop, &late);
	uv_timer_start(&late, on_too_late, 20000, 0);
	ask(2);
	while (!atomic_load(&begun))
		uv_run(&loop, UV_RUN_NOWAIT);
	ask(_i);
	while (!done[2])
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_int_eq(surveys[2].error, -ETIME);
	endless = false;
	uv_close((uv_handle_t *)&late, NULL);
	while (!done[_i])
		uv_run(&loop, UV_RUN_ONCE);
}

TEST(the_end_answers_all)
{
	struct survey late = {.row = on_row, .done = on_done};

	ask(0);
	ask(2);
	survey_stop(&k);
	ck_assert_uint_eq(done[0] + done[2], 2);
	ck_assert_int_eq(surveys[0].error, -ECANCELED);
	ck_assert_int_eq(survey_ask(&k, &late), -ECANCELED);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(searches, 0);
}
