/*
 * delay LISTEN SERVER US: between clients of the Unix socket LISTEN and the server behind the socket SERVER, as a
 * network would be that needs US microseconds each way. Says "ready"; ends with its standard input. What is sent stays
 * in order and whole; how much may be under way at once is not limited.
 */
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "bench/bench.h"

struct chunk {
	struct chunk *next;
	struct timespec due;
	size_t size; /* 0: the end */
	char bytes[];
};

/* One direction of one connection. The reader appends, the writer takes from the front; each frees nothing of the
 * other's. */
struct way {
	int from, to;
	pthread_mutex_t mutex;
	pthread_cond_t more;
	struct chunk *first, **last;
};

static long delay_us;

static struct timespec due_at(void)
{
	struct timespec ts;
	long ns;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ns = ts.tv_nsec + delay_us % 1000000 * 1000;
	ts.tv_sec += delay_us / 1000000 + ns / 1000000000;
	ts.tv_nsec = ns % 1000000000;
	return ts;
}

static void *reader(void *arg)
{
	struct way *way = arg;
	char bytes[65536];
	ssize_t n;

	do {
		n = read(way->from, bytes, sizeof(bytes));
		struct chunk *chunk = malloc(sizeof(*chunk) + (n > 0 ? (size_t)n : 0));

		if (!chunk)
			bench_die("memory");
		*chunk = (struct chunk){.due = due_at(), .size = n > 0 ? (size_t)n : 0};
		if (n > 0)
			memcpy(chunk->bytes, bytes, (size_t)n);
		pthread_mutex_lock(&way->mutex);
		*way->last = chunk;
		way->last = &chunk->next;
		pthread_cond_signal(&way->more);
		pthread_mutex_unlock(&way->mutex);
	} while (n > 0);
	return NULL;
}

static struct chunk *next_chunk(struct way *way)
{
	struct chunk *chunk;

	pthread_mutex_lock(&way->mutex);
	while (!way->first)
		pthread_cond_wait(&way->more, &way->mutex);
	chunk = way->first;
	way->first = chunk->next;
	if (!way->first)
		way->last = &way->first;
	pthread_mutex_unlock(&way->mutex);
	return chunk;
}

static void *writer(void *arg)
{
	struct way *way = arg;
	bool open = true;

	while (open) {
		struct chunk *chunk = next_chunk(way);

		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &chunk->due, NULL) == EINTR)
			;
		for (size_t done = 0; done < chunk->size;) {
			ssize_t n = send(way->to, chunk->bytes + done, chunk->size - done, MSG_NOSIGNAL);

			if (n < 0)
				break;
			done += (size_t)n;
		}
		open = chunk->size > 0;
		free(chunk);
	}
	shutdown(way->to, SHUT_WR);
	return NULL;
}

static void start_way(int from, int to)
{
	struct way *way = malloc(sizeof(*way)); /* for as long as the program runs */
	pthread_t thread;

	if (!way)
		bench_die("memory");
	*way = (struct way){
		.from = from, .to = to, .mutex = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};
	way->last = &way->first;
	if (pthread_create(&thread, NULL, reader, way) != 0 || pthread_create(&thread, NULL, writer, way) != 0)
		bench_die("thread");
}

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

static void *serve(void *arg)
{
	const char *const *argv = arg;
	struct sockaddr_un here = address_of(argv[1]), there = address_of(argv[2]);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&here, sizeof(here)) != 0 || listen(listener, 128) != 0)
		bench_die(argv[1]);
	puts("ready");
	fflush(stdout);
	for (;;) {
		int client = accept(listener, NULL, NULL), server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (client < 0 || server < 0 || connect(server, (struct sockaddr *)&there, sizeof(there)) != 0)
			bench_die(argv[2]);
		start_way(client, server);
		start_way(server, client);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char byte;

	if (argc != 4)
		bench_die("delay LISTEN SERVER US");
	delay_us = bench_number(argv[3]);
	if (pthread_create(&thread, NULL, serve, argv) != 0)
		bench_die("thread");
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return EXIT_SUCCESS;
}
