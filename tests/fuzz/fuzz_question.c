/*
 * Any bytes from a program, and any bytes as the journal of an earlier keeper. The first byte says which:
 *   0: the message itself as it comes; the second byte is the number of descriptors that come with it
 *   1: a good question with these bytes laid over it from a place on
 *   2: a file that is called journal
 *   3: changes to a good journal, two bytes for the place and one for the value; the first two say where it ends. The
 *      checksums are made right again, so that the records are looked at
 * Built by clang -fsanitize=fuzzer,address,undefined with keeper/fronts/question.c, keeper/guard/journal.c and
 * keeper/guard/journal_record.c.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/guard/journal.h"
#include "keeper/fronts/question.h"

#define FDS_MAX     8
#define HOST        "box-0123456789abcdef"
#define RECORD_SUM  4 /* places in a record: its length comes first, what the sum covers after it */
#define RECORD_BODY 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static void check(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s\n", what);
		abort();
	}
}

/* --- questions --- */

static int count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void send_message(int to, const void *data, size_t size, size_t descriptors)
{
	struct iovec iov = {(void *)data, size};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control = {0};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[FDS_MAX];

	for (size_t i = 0; i < FDS_MAX; i++)
		fds[i] = to;
	if (descriptors) {
		control.head = (struct cmsghdr){CMSG_LEN(sizeof(int) * descriptors), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.head), fds, sizeof(int) * descriptors);
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors);
	}
	check(sendmsg(to, &msg, 0) == (ssize_t)size, "no message");
}

/* Whatever question_check() lets through must be what wire/msg.h promises. */
static void check_question(const struct wire_request *r, ssize_t n, int fd)
{
	switch (question_check(r, n, fd >= 0)) {
	case QUESTION_LOCK:
		check(fd >= 0 && n == sizeof(*r) && (r->op == WIRE_LOCK || r->op == WIRE_TEST),
		      "no question for a lock");
		check(r->space < WIRE_SPACES && r->mode < WIRE_MODES && r->owner < WIRE_OWNERS, "a field out of range");
		check(0 <= r->from && r->from < r->to && !(r->flags & ~WIRE_F_ALL), "a range out of range");
		check(r->sent_ns >= 0 && r->sent_ns <= INT64_MAX / 2, "a clock that nobody has");
		/* fall through */
	case QUESTION_BEFORE:
		check(r->from >= 0, "a place out of range");
		/* fall through */
	case QUESTION_CONTROL:
		check(r->magic == WIRE_MAGIC && r->version == WIRE_VERSION && r->op > 0 && r->op < WIRE_OPS,
		      "not ours");
		break;
	case QUESTION_OTHER_VERSION:
		check(n >= 8 && r->magic == WIRE_MAGIC && r->version != WIRE_VERSION, "no other version");
		break;
	case QUESTION_MALFORMED:
		break;
	}
}

static void ask(const void *data, size_t size, size_t descriptors)
{
	int before = count_open(), pair[2], fd;
	struct wire_request r = {0};
	struct question_fds came;
	ssize_t n;

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "no sockets");
	send_message(pair[1], data, size, descriptors);
	n = question_receive(pair[0], &r, &came);
	check(came.count == (descriptors < QUESTION_FDS ? descriptors : QUESTION_FDS), "another count");
	fd = n > 0 && came.count ? came.fds[0] : -1;
	check(descriptors > 1 ? n < 0 : n == (ssize_t)size, "another length");
	check((fd >= 0) == (n > 0 && descriptors == 1), "another descriptor");
	if (n > 0)
		check_question(&r, n, fd);
	for (unsigned i = 0; i < came.count; i++)
		close(came.fds[i]);
	close(pair[0]);
	close(pair[1]);
	check(count_open() == before, "a descriptor was left");
}

static void ask_nearly_right(const uint8_t *data, size_t size)
{
	struct wire_request r = {.magic = WIRE_MAGIC,
				 .version = WIRE_VERSION,
				 .size = sizeof(r),
				 .op = WIRE_LOCK,
				 .to = WIRE_EOF,
				 .sent_ns = 1};
	size_t at = size ? data[0] % sizeof(r) : 0;

	for (size_t i = 1; i < size && at + i <= sizeof(r); i++)
		((uint8_t *)&r)[at + i - 1] = data[i];
	ask(&r, sizeof(r), size % 3 != 0);
}

/* --- the journal --- */

/* What it told: the number of entries, and a sum over them in which their order does not count. */
struct told {
	size_t count;
	uint64_t sum;
	char token[STORE_TOKEN_BYTES]; /* of one of them */
	char host[STORE_HOST_BYTES];
	int64_t deadline_ns;
};

static char folder[PATH_MAX];
static int dir_fd;
static uint8_t good[4096]; /* a journal with some history */
static size_t good_bytes, head_bytes;

static uint64_t add_bytes(uint64_t sum, const void *data, size_t size)
{
	for (const uint8_t *p = data; size; p++, size--)
		sum = (sum ^ *p) * 1099511628211u;
	return sum;
}

static void on_entry(void *arg, const struct journal_entry *e)
{
	struct told *told = arg;
	uint64_t sum = 14695981039346656037u;

	check(memchr(e->token, 0, sizeof(e->token)) && memchr(e->name, 0, sizeof(e->name)), "a text without end");
	check(strlen(e->path) < PATH_MAX, "a long path");
	check((unsigned)e->range.space < WIRE_SPACES && (unsigned)e->range.mode < WIRE_MODES, "no lock");
	sum = add_bytes(sum, e->token, strlen(e->token));
	sum = add_bytes(sum, e->name, strlen(e->name));
	sum = add_bytes(sum, e->path, strlen(e->path));
	sum = add_bytes(sum, &e->range, sizeof(e->range));
	sum = add_bytes(sum, &e->fence, sizeof(e->fence));
	told->sum += sum;
	told->count++;
	memcpy(told->token, e->token, sizeof(told->token));
}

static struct journal *open_journal(struct told *told, int may_complain)
{
	char why[256] = "unset";
	struct journal *j;

	*told = (struct told){.host = HOST};
	j = journal_open(dir_fd, told->host, &told->deadline_ns, on_entry, told, why, sizeof(why));
	check(j != NULL, "it was not opened");
	check(may_complain || !*why, why);
	check(!*why || (!told->count && !strchr(why, '\n')), "damaged, and yet taken up");
	check(*told->host && memchr(told->host, 0, sizeof(told->host)) && told->deadline_ns >= 0, "a bad head");
	return j;
}

static void write_file(const uint8_t *data, size_t size)
{
	int fd = openat(dir_fd, "journal", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	check(write(fd, data, size) == (ssize_t)size, "no file");
	close(fd);
}

static size_t read_file(uint8_t *data, size_t size)
{
	int fd = openat(dir_fd, "journal", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, data, size);

	check(n > 0 && (size_t)n < size, "no good journal");
	close(fd);
	return n;
}

/* Whatever the file was, the one that is there now is in order, and is gone on with. */
static void check_journal(void)
{
	struct told first, second, third;
	struct journal_entry e = {.token = "0123456789abcdef", .name = "n", .path = "/p"};
	struct journal *j = open_journal(&first, 1);

	check(journal_remove(j, e.token) == 0 && journal_add(j, &e) == 0, "cannot be written");
	journal_close(j);
	j = open_journal(&second, 0);
	check(second.count >= first.count && second.count <= first.count + 1 && second.count, "lost");
	check(strcmp(first.host, second.host) == 0 && first.deadline_ns == second.deadline_ns, "another head");
	check(journal_set_fence(j, second.token, 77, WIRE_SHARED) == 0 && journal_remove(j, second.token) == 0 &&
		      journal_set_deadline(j, 1) == 0,
	      "cannot be written");
	journal_close(j);
	j = open_journal(&third, 0);
	check(third.count == second.count - 1 && third.deadline_ns == 1, "not as it was left");
	journal_close(j);
	j = open_journal(&second, 0);
	check(third.count == second.count && third.sum == second.sum, "told otherwise the second time");
	journal_close(j);
}

static void make_sums_right(uint8_t *data, size_t size)
{
	uint32_t bytes;

	for (size_t at = head_bytes; at < size && size - at >= RECORD_BODY; at += bytes) {
		uint32_t sum = 2166136261u;

		memcpy(&bytes, data + at, sizeof(bytes));
		if (bytes < RECORD_BODY || bytes > size - at)
			return;
		for (size_t i = RECORD_BODY; i < bytes; i++)
			sum = (sum ^ data[at + i]) * 16777619u;
		memcpy(data + at + RECORD_SUM, &sum, sizeof(sum));
	}
}

static void read_changed(const uint8_t *data, size_t size)
{
	uint8_t copy[sizeof(good)];
	size_t end = good_bytes;

	memcpy(copy, good, good_bytes);
	if (size >= 2)
		end -= (data[0] | data[1] << 8) % good_bytes;
	for (size_t i = 2; i + 3 <= size; i += 3)
		copy[(data[i] | data[i + 1] << 8) % good_bytes] = data[i + 2];
	make_sums_right(copy, end);
	write_file(copy, end);
	check_journal();
}

/* As the module itself writes it. */
static void make_good(void)
{
	struct told told;
	struct journal *j = open_journal(&told, 0);
	struct journal_entry e = {
		.range = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF}, .dev = 1, .path = "/srv/jobs/x.lock"};

	head_bytes = read_file(good, sizeof(good));
	for (int i = 0; i < 6; i++) {
		snprintf(e.token, sizeof(e.token), "%032d", i);
		snprintf(e.name, sizeof(e.name), "jobs/lock-%.*d", i, i);
		check(journal_add(j, &e) == 0, "no entry");
		check(i % 3 == 0 || journal_set_fence(j, e.token, i, WIRE_SHARED) == 0, "no fence");
		check(i % 3 < 2 || journal_remove(j, e.token) == 0, "not removed");
	}
	journal_close(j);
	good_bytes = read_file(good, sizeof(good));
}

static void clean_up(void)
{
	unlinkat(dir_fd, "journal", 0);
	unlinkat(dir_fd, "journal.bad", 0);
	rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *tmp = getenv("TMPDIR");
	(void)argc, (void)argv;
	snprintf(folder, sizeof(folder), "%s/dflock-fuzz-XXXXXX", tmp ? tmp : "/tmp");
	check(mkdtemp(folder) != NULL, "no folder");
	dir_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	atexit(clean_up);
	make_good();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	switch (data[0] % 4) {
	case 0:
		ask(data + 2, size - 2, data[1] % (FDS_MAX + 1));
		break;
	case 1:
		ask_nearly_right(data + 1, size - 1);
		break;
	case 2:
		write_file(data + 1, size - 1);
		check_journal();
		break;
	case 3:
		read_changed(data + 1, size - 1);
		break;
	}
	return 0;
}
