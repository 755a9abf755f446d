/* See survey.h. */
#include "keeper/leases/survey.h"

#include <errno.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/kernel/census.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"

#define PAUSE        2  /* times as long as a search ran on a processor, or MOST_NS: until the next one */
#define LAZY_PAUSE   20 /* ... with lazy questions */
#define LAZY_LAST_NS (1000 * NS_PER_MS)
#define LAZY_SOON_NS (100 * NS_PER_MS)
/* `dflock status` waits for ten seconds: for the end of a search, a pause, and its own. The last turn may be as long as all before it. */
#define MOST_NS      (1500 * NS_PER_MS)
#define MOST_LAZY_NS (1000 * NS_PER_MS) /* from when a question waits */
#define MOST_LONG_NS (2000 * NS_PER_MS) /* with patient questions */

static void survey_run(struct surveys *h);

const struct claim *survey_claim(const struct survey *s, const struct holder *h, size_t *next)
{
	const struct claim *claim;

	while ((claim = claims_next(&s->all->claims, h->file, h->space, h->from, h->to, next)))
		if (claim->whose == s)
			break;
	return claim;
}

/* --- in a worker --- */

static int survey_on_holder(void *arg, const struct holder *holder)
{
	struct surveys *h = arg;
	struct survey *s;

	DL_FOREACH (h->running, s)
		if (!s->error)
			s->error = s->row(s, holder);
	return 0;
}

static int survey_on_turn(void *arg)
{
	const struct surveys *h = arg;

	return clock_now_ns() > __atomic_load_n(&h->until_ns, __ATOMIC_RELAXED) ? -ETIME : 0; /* mutant: survey-over */
}

static void survey_work(uv_work_t *req)
{
	struct surveys *h = req->data;
	struct holders_search ask = {.ignore_pid = h->self, .cb = survey_on_holder, .turn = survey_on_turn, .arg = h};
	int64_t before = clock_thread_ns();
	struct survey *s;
	int ret;

	DL_FOREACH (h->running, s)
		ask.how |= s->commands ? HOLDERS_COMMANDS : 0;
	ret = claims_build(&h->claims);
	if (!ret)
		ret = census_take(&h->claims, &ask);
	DL_FOREACH (h->running, s) {
		s->error = s->error ? s->error : ret;
		if (!s->error && s->end)
			s->error = s->end(s);
		s->unseen = ask.unseen;
		s->ran_ns = clock_thread_ns() - before;
	}
}

/* --- in the loop --- */

static void survey_finish(struct survey **list)
{
	while (*list) {
		struct survey *s = *list;

		DL_DELETE(*list, s);
		claims_free(&s->claims);
		s->done(s);
	}
}

static void survey_searched(uv_work_t *req, int status)
{
	struct surveys *h = req->data;
	struct survey *answered = h->running;
	int64_t now = clock_now_ns(), ran_ns = answered->ran_ns;
	struct survey *s;

	(void)status;
	h->not_before_ns = now + PAUSE * (ran_ns < MOST_NS ? ran_ns : MOST_NS);
	DL_FOREACH (answered, s)
		if (s->lazy)
			h->lazy_ns = now + (LAZY_PAUSE * ran_ns > LAZY_LAST_NS ? LAZY_PAUSE * ran_ns : LAZY_LAST_NS);
	h->running = NULL;
	claims_free(&h->claims);
	survey_finish(&answered);
	survey_run(h);
	queue_settle(h->keeper);
}

static int survey_add_claims(struct surveys *h, struct survey *s)
{
	int ret = s->begin ? s->begin(s) : 0;

	for (size_t i = 0; !ret && i < claims_count(&s->claims); i++) {
		struct claim claim = *claims_at(&s->claims, i);

		claim.whose = s;
		ret = array_push(&h->claims.all, &claim, sizeof(claim));
	}
	return ret;
}

/* A question that does not wait for long is one of the search that runs, or waits for it. */
static void survey_hurry(struct surveys *h, int64_t most_ns)
{
	if (h->running && h->until_ns == INT64_MAX)
		__atomic_store_n(&h->until_ns, clock_now_ns() + most_ns, __ATOMIC_RELAXED);
}

static int64_t survey_due_ns(const struct surveys *h, const struct survey *s)
{
	return s->lazy && h->lazy_ns > h->not_before_ns ? h->lazy_ns : h->not_before_ns;
}

static void on_survey_timer(uv_timer_t *timer)
{
	survey_run(timer->data);
}

/* Never begins a search from inside survey_ask(), whose caller expects no answer then. */
static void survey_plan(struct surveys *h)
{
	int64_t now = clock_now_ns(), first = INT64_MAX;
	const struct survey *s;

	DL_FOREACH (h->waiting, s)
		first = survey_due_ns(h, s) < first ? survey_due_ns(h, s) : first;
	if (first < INT64_MAX && !h->running)
		uv_timer_start(&h->timer, on_survey_timer, first > now ? (uint64_t)((first - now) / NS_PER_MS + 1) : 0,
			       0);
}

static void survey_run(struct surveys *h)
{
	int64_t now = clock_now_ns(), most_ns = MOST_NS;
	struct survey *s, *next;

	if (h->running || h->stopped)
		return;
	DL_FOREACH_SAFE (h->waiting, s, next) {
		if (survey_due_ns(h, s) > now)
			continue;
		DL_DELETE(h->waiting, s);
		DL_APPEND(h->running, s);
		s->error = survey_add_claims(h, s);
		most_ns = s->patient ? MOST_LONG_NS : most_ns;
	}
	h->until_ns = INT64_MAX;
	DL_FOREACH (h->running, s)
		if (!s->lazy)
			survey_hurry(h, most_ns);
	if (h->running && uv_queue_work(h->keeper->loop, &h->work, survey_work, survey_searched) != 0) {
		struct survey *failed = h->running;

		DL_FOREACH (failed, s)
			s->error = -ENOMEM;
		h->running = NULL;
		claims_free(&h->claims);
		survey_finish(&failed);
	}
	survey_plan(h);
}

int survey_ask(struct keeper *k, struct survey *s)
{
	struct surveys *h = &k->surveys;
	int64_t soon = clock_now_ns() + LAZY_SOON_NS;

	if (h->stopped)
		return -ECANCELED;
	s->all = h;
	s->error = 0;
	if (s->lazy && h->lazy_ns < soon)
		h->lazy_ns = soon;
	DL_APPEND(h->waiting, s);
	if (!s->lazy)
		survey_hurry(h, MOST_LAZY_NS);
	survey_plan(h);
	return 0;
}

void survey_start(struct keeper *k)
{
	struct surveys *h = &k->surveys;

	*h = (struct surveys){.keeper = k, .self = getpid()};
	h->work.data = h;
	uv_timer_init(k->loop, &h->timer);
	h->timer.data = h;
}

void survey_stop(struct keeper *k)
{
	struct surveys *h = &k->surveys;
	struct survey *s;

	h->stopped = true;
	uv_close((uv_handle_t *)&h->timer, NULL);
	DL_FOREACH (h->waiting, s)
		s->error = -ECANCELED;
	survey_finish(&h->waiting);
}
