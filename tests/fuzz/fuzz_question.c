/*
 * Any bytes from a program, and any bytes as the table of leases of an earlier keeper. The first byte says which:
 *   0: the message itself as it comes; the second byte is the number of descriptors that come with it
 *   1: a good question; these bytes replace its bytes from a given place on 2: a file of the table (the second byte
 *   says which of the two) 3: changes to a good table, four bytes each: where (head, slots, text), two for the place,
 *   and one for the value
 * Built by clang -fsanitize=fuzzer,address,undefined with keeper/callers/question.c and keeper/guard/table*.c.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/fronts/question.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_file.h"
#include "tests/fuzz/fuzz.h"

#define FDS_MAX 8
#define HOST    "box-0123456789abcdef"

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

/* A question that question_check() accepts must keep what wire/msg.h promises. */
static void check_question(const struct wire_request *r, ssize_t n, int fd)
{
	switch (question_check(r, n, fd >= 0)) {
	case QUESTION_LOCK:
		check(fd >= 0 && n == sizeof(*r) && (r->op == WIRE_LOCK || r->op == WIRE_TEST || r->op == WIRE_HELD),
		      "no question for a lock");
		check(r->space < WIRE_SPACES && r->mode < WIRE_MODES && r->owner < WIRE_OWNERS, "a field out of range");
		check(0 <= r->from && r->from < r->to && !(r->flags & ~WIRE_F_ALL), "a range out of range");
		check(r->sent_ns >= 0 && r->sent_ns <= INT64_MAX / 2, "a clock that nobody has");
		/* fall through */
	case QUESTION_BEFORE:
		check(r->from >= 0, "a place out of range");
		/* fall through */
	case QUESTION_CONTROL:
		check(r->magic == WIRE_MAGIC && (r->version == WIRE_VERSION || r->op == WIRE_STOP) && r->op > 0 &&
			      r->op < WIRE_OPS,
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
	struct question q = {.text = ""};
	struct passing came;
	ssize_t n;

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "no sockets");
	send_message(pair[1], data, size, descriptors);
	n = question_receive(pair[0], &q, &came);
	check(came.count == (descriptors < PASSING_FDS ? descriptors : PASSING_FDS), "another count");
	fd = n > 0 && came.count ? came.fds[0] : -1;
	check(descriptors > 1 ? n < 0 : n == (ssize_t)size, "another length");
	check((fd >= 0) == (n > 0 && descriptors == 1), "another descriptor");
	if (n > 0)
		check_question(&q.request, n, fd);
	check(strlen(q.text) < sizeof(q.text), "a text without an end");
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

/* --- the table of leases --- */

/* What it told: the number of entries, and a sum over them in which their order does not count. */
struct told {
	size_t count;
	uint64_t sum;
};

static char folder[PATH_MAX];
static int dir_fd;
static struct table table;

static uint64_t add_bytes(uint64_t sum, const void *data, size_t size)
{
	for (const uint8_t *p = data; size; p++, size--)
		sum = (sum ^ *p) * 1099511628211u;
	return sum;
}

static bool on_entry(void *arg, const struct table_entry *e)
{
	struct told *told = arg;
	uint64_t sum = 14695981039346656037u;

	check(strlen(e->token) < STORE_TOKEN_BYTES && strlen(e->name) < LOCK_NAME_BYTES && strlen(e->path) < PATH_MAX,
	      "a long text");
	check((unsigned)e->range.space < WIRE_SPACES && (unsigned)e->range.mode < WIRE_MODES, "no lock");
	check(e->range.from >= 0 && e->range.from < e->range.to, "no range");
	check(!e->unsure || e->fence, "a lease that was not granted");
	sum = add_bytes(sum, e->token, strlen(e->token));
	sum = add_bytes(sum, e->name, strlen(e->name));
	sum = add_bytes(sum, e->path, strlen(e->path));
	sum = add_bytes(sum, &e->range, sizeof(e->range));
	sum = add_bytes(sum, &e->fence, sizeof(e->fence));
	told->sum += sum;
	told->count++;
	return true;
}

static void close_table(void) { table_close(&table); }

static void open_table(int may_complain)
{
	char why[256] = "unset", host[STORE_HOST_BYTES] = HOST;
	int ret = table_open(&table, dir_fd, why, sizeof(why));

	check(ret == 0, "it was not opened");
	check(may_complain || !*why, why);
	check(!strchr(why, '\n'), "more than one line");
	table_host(&table, host);
	check(memchr(host, 0, sizeof(host)) != NULL, "a host without end");
	check(strlen(table_incarnation(&table, 0)) < STORE_INC_BYTES, "an incarnation without end");
}

static struct told take_up(unsigned *damaged)
{
	struct told told = {0};

	check(table_take_up(&table, on_entry, &told, damaged) == 0, "it was not taken up");
	return told;
}

static uint32_t add_lease(int n)
{
	char token[STORE_TOKEN_BYTES], name[LOCK_NAME_BYTES];
	struct table_lease lease = {.token = token,
				    .name = name,
				    .path = "/srv/jobs/x.lock",
				    .file = {.dev = 1, .ino = 2},
				    .range = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF}};
	uint32_t slot = TABLE_NO_SLOT;

	snprintf(token, sizeof(token), "%032d", n);
	snprintf(name, sizeof(name), "jobs/lock-%.*d", n, n);
	check(table_ask(&table, &lease, &slot) == 0, "no slot");
	return slot;
}

/* Whatever the files were, the table is in order now. Goes on with it, also as the parent. */
static void check_table(void)
{
	const struct store_range all = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	struct told first, second;
	unsigned damaged;

	open_table(1);
	for (uint32_t i = 0; i < table_used(&table); i++) {
		struct table_view view;

		table_view(&table, i, &view);
		check(view.from >= 0 && view.from < view.to && (unsigned)view.space < WIRE_SPACES &&
			      (unsigned)view.state < TABLE_STATES && view.state != TABLE_ENDING,
		      "no view");
	}
	(void)table_in_use(&table);
	first = take_up(&damaged);
	table_lose_damaged(&table);
	table_grant(&table, add_lease(7), 77, &all, &(struct holders_file){.dev = 3, .ino = 4});
	close_table();
	open_table(0);
	second = take_up(&damaged);
	check(!damaged, "damaged by itself");
	check(second.count == first.count + 1, "not as it was left");
	close_table();
}

static void write_file(const char *name, const uint8_t *data, size_t size)
{
	int fd;

	unlinkat(dir_fd, name, 0);
	fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	check(write(fd, data, size) == (ssize_t)size, "no file");
	close(fd);
}

static void make_good(void)
{
	const struct store_range all = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	unsigned damaged;

	unlinkat(dir_fd, TABLE_NAME, 0);
	open_table(0);
	take_up(&damaged);
	for (int i = 0; i < 6; i++) {
		uint32_t slot = add_lease(i);

		if (i % 3 != 0)
			table_grant(&table, slot, (uint64_t)i, &all, &(struct holders_file){.dev = 1, .ino = 2});
		if (i % 3 == 2)
			table_return(&table, slot);
	}
	table_vacate(&table, 0);
}

/* Four bytes of input change one byte: where (head, slots or text), and the new value. Then corrects the slot's sum, so
 * that the code looks at the rest. */
static void read_changed(const uint8_t *data, size_t size)
{
	make_good();
	for (size_t i = 0; i + 4 <= size; i += 4) {
		size_t at = data[i + 1] | data[i + 2] << 8;
		struct table_slot *slot = &table.slots[at / sizeof(*slot) % 6];

		if (data[i] % 3 == 0)
			((uint8_t *)table.head)[at % offsetof(struct table_head, busy)] = data[i + 3];
		else if (data[i] % 3 == 1)
			((uint8_t *)slot)[at % sizeof(*slot)] = data[i + 3];
		else
			table.text.map[at % table.text.bytes] = (char)data[i + 3];
		if (data[i] & 4)
			slot->sum = table_slot_sum(slot, table_word_generation(slot->word), table.boot);
	}
	close_table();
	check_table();
}

static void clean_up(void)
{
	unlinkat(dir_fd, TABLE_NAME, 0);
	unlinkat(dir_fd, TABLE_TEXT_NAME, 0);
	unlinkat(dir_fd, TABLE_BAD_NAME, 0);
	rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *tmp = getenv("TMPDIR");
	snprintf(folder, sizeof(folder), "%s/dflock-fuzz-XXXXXX", tmp ? tmp : "/tmp");
	check(mkdtemp(folder) != NULL, "no folder");
	dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	atexit(clean_up);
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
		make_good();
		close_table();
		write_file(data[1] % 2 ? TABLE_NAME : TABLE_TEXT_NAME, data + 2, size - 2);
		check_table();
		break;
	case 3:
		read_changed(data + 1, size - 1);
		break;
	}
	return 0;
}
