/* See sim.h: time, events, random numbers, tasks. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/sim/sim.h"

#define STACK_BYTES (512u << 10)

int64_t sim_now;
uint64_t sim_seed;
uint64_t *sim_digest;
bool sim_tracing;
struct task *task_now;

/* --- random numbers: splitmix64 --- */

uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int64_t rng_between(struct rng *rng, int64_t from, int64_t to)
{
	return to <= from ? from : from + (int64_t)(rng_next(rng) % (uint64_t)(to - from));
}

bool rng_chance(struct rng *rng, unsigned per_mille) { return rng_next(rng) % 1000 < per_mille; }

struct rng rng_of(const char *kind, uint64_t number)
{
	struct rng rng = {.state = sim_seed * 0x9e3779b97f4a7c15u + number * 0xd1342543de82ef95u};

	for (; *kind; kind++)
		rng.state = (rng.state ^ (unsigned char)*kind) * 0x100000001b3u;
	rng_next(&rng);
	return rng;
}

int64_t rng_delay(struct rng *rng, int64_t most)
{
	int64_t top = 200000;

	if (rng_chance(rng, 100))
		top = 5 * MS;
	if (rng_chance(rng, 10))
		top = most;
	return rng_between(rng, 10000, top < most ? top : most);
}

/* --- events: a heap, by time and then by age --- */

struct event {
	int64_t when;
	uint64_t age;
	sim_fn *fn;
	void *arg;
	uint64_t number;
};
static struct event *heap;
static size_t heap_count, heap_room;
static uint64_t heap_age;

static bool before(const struct event *a, const struct event *b)
{
	return a->when != b->when ? a->when < b->when : a->age < b->age;
}

void sim_at(int64_t when, sim_fn *fn, void *arg, uint64_t number)
{
	struct event e = {
		.when = when < sim_now ? sim_now : when, .age = heap_age++, .fn = fn, .arg = arg, .number = number};
	size_t i = heap_count++;

	if (heap_count > heap_room) {
		heap_room = heap_room ? 2 * heap_room : 1024;
		heap = realloc(heap, heap_room * sizeof(*heap));
		if (!heap)
			abort();
	}
	for (; i > 0 && before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = e;
}

void sim_after(int64_t ns, sim_fn *fn, void *arg, uint64_t number) { sim_at(sim_now + ns, fn, arg, number); }

static struct event take_first(void)
{
	struct event first = heap[0], last = heap[--heap_count];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < heap_count) {
		if (child + 1 < heap_count && before(&heap[child + 1], &heap[child]))
			child++;
		if (!before(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return first;
}

bool sim_run(bool (*done)(void), int64_t until)
{
	while (!done()) {
		if (!heap_count || heap[0].when > until)
			return false;
		struct event e = take_first();

		sim_now = e.when;
		*sim_digest = (*sim_digest ^ (uint64_t)e.when) * 0x100000001b3u;
		e.fn(e.arg, e.number);
		check_step();
	}
	return true;
}

void *sim_new(size_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory)
		abort();
	return memory;
}

/* --- what is said --- */

void sim_trace(const char *format, ...)
{
	va_list args;

	if (!sim_tracing)
		return;
	printf("%10.6f ", (double)sim_now / SEC);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

void sim_fail(const char *format, ...)
{
	va_list args;

	printf("seed %llu: at %.6f s: ", (unsigned long long)sim_seed, (double)sim_now / SEC);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	if (sim_tracing)
		check_describe();
	fflush(stdout);
	_Exit(1);
}

/* --- tasks --- */

struct task {
	ucontext_t context;
	void *stack;
	struct host *host;
	struct rng *rng;
	void (*main)(void *arg);
	void *arg;
	bool ended;
};
static ucontext_t scheduler;

static void task_main(void)
{
	struct task *task = task_now;

	task->main(task->arg);
	task->ended = true;
	task_yield();
}

struct task *task_new(struct host *host, struct rng *rng, void (*main)(void *arg), void *arg)
{
	struct task *task = sim_new(sizeof(*task));

	task->stack =
		mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (task->stack == MAP_FAILED || getcontext(&task->context) != 0)
		abort();
	task->host = host;
	task->rng = rng;
	task->main = main;
	task->arg = arg;
	task->context.uc_stack.ss_sp = task->stack;
	task->context.uc_stack.ss_size = STACK_BYTES;
	makecontext(&task->context, task_main, 0);
	return task;
}

void task_free(struct task *task)
{
	if (!task)
		return;
	munmap(task->stack, STACK_BYTES);
	free(task);
}

void task_resume(struct task *task)
{
	task_now = task;
	swapcontext(&scheduler, &task->context);
	task_now = NULL;
}

void task_yield(void)
{
	struct task *task = task_now;
	int saved = errno; /* all tasks share one thread's */

	swapcontext(&task->context, &scheduler);
	errno = saved;
}

bool task_ended(const struct task *task) { return task->ended; }
struct host *task_host(const struct task *task) { return task ? task->host : NULL; }
struct rng *task_rng(const struct task *task) { return task->rng; }
