/* keeper/kernel/workers.h: work that hangs on one device keeps two threads, and delays no other device's work. */
#include "keeper/kernel/workers.h"

#include "tests/unit/suite.h"

struct job {
	struct work work; /* the first member */
	bool hangs;       /* until the pipe ends */
	bool ran;         /* atomic */
	int order;        /* in which it was done; 0: not yet */
};

static uv_loop_t loop;
static struct workers *workers;
static int gate[2], done_count;
static int at_a_time, most_at_a_time; /* atomic: of those that hang */
static struct job next;

static void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	workers = workers_new(&loop);
	ck_assert_ptr_nonnull(workers);
	ck_assert_int_eq(pipe(gate), 0);
	done_count = at_a_time = most_at_a_time = 0;
	next = (struct job){0};
}

static void teardown(void)
{
	close(gate[0]);
	workers_free(workers);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
FIXTURE(setup, teardown)

static void run(struct work *work)
{
	struct job *job = (struct job *)work;
	char byte;

	if (job->hangs) {
		int now = __atomic_add_fetch(&at_a_time, 1, __ATOMIC_ACQ_REL);

		if (now > __atomic_load_n(&most_at_a_time, __ATOMIC_ACQUIRE))
			__atomic_store_n(&most_at_a_time, now, __ATOMIC_RELEASE);
		ck_assert_int_eq(read(gate[0], &byte, 1), 0);
		__atomic_sub_fetch(&at_a_time, 1, __ATOMIC_ACQ_REL);
	}
	__atomic_store_n(&job->ran, true, __ATOMIC_RELEASE);
}

static void done(struct work *work)
{
	struct job *job = (struct job *)work;

	ck_assert(job->ran);
	job->order = ++done_count;
}

static void start(struct job *job, uint64_t dev)
{
	job->work = (struct work){.run = run, .done = done};
	ck_assert_int_eq(workers_start(workers, dev, &job->work), 0);
	ck_assert_int_eq(job->order, 0); /* never from inside the call */
}

TEST(one_device_hangs)
{
	struct job hanging[6] = {0}, other[4] = {0};

	for (int i = 0; i < 6; i++) {
		hanging[i].hangs = true;
		start(&hanging[i], 1);
	}
	for (int i = 0; i < 4; i++)
		start(&other[i], 2);
	while (done_count < 4)
		uv_run(&loop, UV_RUN_ONCE);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(hanging[i].order, 0);
	close(gate[1]);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(done_count, 10);
	ck_assert_int_le(most_at_a_time, WORKERS_PER_DEVICE);
}

static void start_next(struct work *work)
{
	done(work);
	if (!next.work.run)
		start(&next, 1);
}

/* The last work on a device may start new work there when it ends, after the device was forgotten. */
TEST(one_starts_the_next)
{
	struct job first = {0};

	close(gate[1]);
	first.work = (struct work){.run = run, .done = start_next};
	ck_assert_int_eq(workers_start(workers, 1, &first.work), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(first.order, 1);
	ck_assert_int_eq(next.order, 2);
}
