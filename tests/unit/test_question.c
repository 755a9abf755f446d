/* keeper/fronts/question.c: receiving what a hostile program may send, so that no descriptor stays behind, and which questions make sense. */
#include "keeper/fronts/question.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/unit/open_count.h"
#include "tests/unit/suite.h"

#define MANY 253 /* descriptors in one message: the kernel's limit */

static struct wire_request good(enum wire_op op)
{
	return (struct wire_request){.magic = WIRE_MAGIC,
				     .version = WIRE_VERSION,
				     .size = sizeof(struct wire_request),
				     .op = op,
				     .space = WIRE_FLOCK,
				     .mode = WIRE_EXCLUSIVE,
				     .to = WIRE_EOF,
				     .sent_ns = 1};
}

/* --- receiving --- */

static int ours, theirs; /* the two ends */
static int passed;       /* a descriptor to pass */
static int before;       /* how many we had open */

static void setup(void)
{
	int pair[2];
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ours = pair[0];
	theirs = pair[1];
	passed = open("/dev/null", O_RDONLY);
	ck_assert_int_ge(passed, 0);
	before = count_open();
}

static void teardown(void)
{
	close(ours);
	close(theirs);
	close(passed);
}
FIXTURE(setup, teardown)

static void send_message(const void *data, size_t size, size_t descriptors)
{
	struct iovec iov = {(void *)data, size};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int) * MANY)];
	} control = {0};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[MANY];

	for (size_t i = 0; i < MANY; i++)
		fds[i] = passed;
	if (descriptors) {
		control.head = (struct cmsghdr){CMSG_LEN(sizeof(int) * descriptors), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.head), fds, sizeof(int) * descriptors);
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors);
	}
	ck_assert_int_eq(sendmsg(theirs, &msg, 0), (ssize_t)size);
}

/* A possible question comes with one descriptor or none; closes the descriptors that come with anything else. */
static ssize_t receive(struct wire_request *r, int *fd)
{
	struct question question = {.text = ""};
	struct passing came;
	ssize_t n = question_receive(ours, &question, &came);

	*r = question.request;
	ck_assert_uint_le(came.count, PASSING_FDS);
	*fd = n > 0 && came.count ? came.fds[0] : -1;
	ck_assert(n <= 0 || came.count <= 1);
	for (unsigned i = 0; i < came.count && n <= 0; i++)
		close(came.fds[i]);
	return n;
}

static void check_nothing_comes(ssize_t result)
{
	struct wire_request r;
	int fd = 99;
	ck_assert_int_eq(receive(&r, &fd), result);
	ck_assert_int_eq(fd, -1);
}

static void check_one_comes(size_t descriptors)
{
	struct wire_request sent = good(WIRE_LOCK), r = {0};
	int fd;

	send_message(&sent, sizeof(sent), descriptors);
	ck_assert_int_eq(receive(&r, &fd), sizeof(sent));
	ck_assert_mem_eq(&r, &sent, sizeof(r));
	ck_assert_int_eq(fd >= 0, descriptors);
	ck_assert_int_eq(count_open(), before + (int)descriptors);
	if (fd >= 0)
		ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
}

TEST(one_or_nothing)
{
	check_nothing_comes(-EAGAIN);
	check_one_comes(1);
	check_one_comes(0);
	close(theirs);
	check_nothing_comes(0);
	theirs = dup(ours);
}

/* A message without a byte is as if the peer had gone, and yet a descriptor may come with it. */
TEST(too_many_descriptors)
{
	static const size_t counts[] = {2, 3, 4, 5, 6, MANY};
	struct wire_request sent = good(WIRE_LOCK);

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts) + 3; i++) {
		bool empty = i < 3;

		send_message(&sent, empty ? 0 : sizeof(sent), empty ? i : counts[i - 3]);
		check_nothing_comes(i < 2 ? 0 : -EBADMSG);
		ck_assert_int_eq(count_open(), before);
		check_one_comes(1); /* of an honest peer */
	}
}

/* What is longer than a question may be is cut off, and its length says so; a text always ends with NUL. */
static void check_length(enum wire_op op, size_t n)
{
	static unsigned char bytes[sizeof(struct question) + 100];
	struct wire_request sent = good(op);
	struct passing came;
	struct {
		struct question q;
		char guard[16];
	} in;
	size_t text = n > sizeof(sent) ? n - sizeof(sent) : 0;
	bool fits = op == WIRE_LOCK ? n == sizeof(sent) : text > 0 && text < WIRE_TEXT_BYTES;

	memset(bytes, 0xee, sizeof(bytes));
	memcpy(bytes, &sent, sizeof(sent));
	memset(&in, 0x5a, sizeof(in));
	send_message(bytes, n, op == WIRE_LOCK);
	ck_assert_int_eq(question_receive(ours, &in.q, &came), (ssize_t)n);
	ck_assert_uint_eq(came.count, op == WIRE_LOCK);
	if (came.count)
		close(came.fds[0]);
	for (size_t i = 0; i < sizeof(in.guard); i++)
		ck_assert_int_eq(in.guard[i], 0x5a);
	if (n >= sizeof(sent))
		ck_assert_uint_eq(strlen(in.q.text), text < WIRE_TEXT_BYTES ? text : WIRE_TEXT_BYTES - 1);
	ck_assert_int_eq(question_check(&in.q.request, n, op == WIRE_LOCK), !fits             ? QUESTION_MALFORMED
									    : op == WIRE_LOCK ? QUESTION_LOCK
											      : QUESTION_CONTROL);
}

TEST(every_length)
{
	for (size_t n = 1; n <= 2 * sizeof(struct wire_request); n++)
		check_length(WIRE_LOCK, n);
	for (size_t n = sizeof(struct question) - 2; n <= sizeof(struct question) + 100; n += 17)
		check_length(WIRE_LOCK, n);
	for (int text = 0; text <= WIRE_TEXT_BYTES + 10; text += text == 1 ? WIRE_TEXT_BYTES - 2 : 1)
		check_length(WIRE_BREAK, sizeof(struct wire_request) + (size_t)text);
}

/* valgrind keeps RLIMIT_NOFILE to itself: the kernel never sees the table full. */
TEST(table_full)
{
	if (suite_under_valgrind())
		return;

	struct wire_request sent = good(WIRE_LOCK);
	struct rlimit limit, old;
	int top = dup(ours); /* the lowest free number */

	close(top);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (int room = 0; room < 2; room++) { /* none; for one of two */
		send_message(&sent, sizeof(sent), (size_t)room + 1);
		limit = (struct rlimit){.rlim_cur = (rlim_t)(top + room), .rlim_max = old.rlim_max};
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		check_nothing_comes(room ? -EBADMSG : -EMFILE);
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	ck_assert_int_eq(count_open(), before);
}

/* --- what makes sense --- */

/* Which operations have a descriptor, a text, or neither. */
TEST(operations)
{
	for (unsigned op = 0; op < 256; op++) {
		struct wire_request r = good(op);
		bool lock = op == WIRE_LOCK || op == WIRE_TEST || op == WIRE_HELD;
		bool control = ((op > 0 && op < WIRE_WHO) || op == WIRE_METRICS) && !lock && op != WIRE_BEFORE;
		bool text = op == WIRE_WHO || op == WIRE_BREAK || op == WIRE_END_REST || op == WIRE_GIVE_UP ||
			    op == WIRE_LOG_LEVEL;
		enum question_kind without = control             ? QUESTION_CONTROL
					     : op == WIRE_BEFORE ? QUESTION_BEFORE
								 : QUESTION_MALFORMED;

		ck_assert_int_eq(question_check(&r, sizeof(r), true), lock ? QUESTION_LOCK : QUESTION_MALFORMED);
		ck_assert_int_eq(question_check(&r, sizeof(r), false), without);
		ck_assert_int_eq(question_check(&r, sizeof(r) + 1, false),
				 text ? QUESTION_CONTROL : QUESTION_MALFORMED);
		ck_assert_int_eq(question_check(&r, sizeof(r) + 1, true), QUESTION_MALFORMED);
	}
}

/* A later version may ask longer questions: it is told so, and not just disconnected. */
TEST(other_versions)
{
	struct wire_request r = good(WIRE_LOCK);

	for (unsigned v = 0; v <= UINT16_MAX; v += v < 10 ? 1 : 97) {
		r.version = v;
		ck_assert_int_eq(question_check(&r, sizeof(r), true),
				 v == WIRE_VERSION ? QUESTION_LOCK : QUESTION_OTHER_VERSION);
	}
	/* Any version may tell the keeper to end, and nothing else. */
	for (int op = 0; op < 256; op++) {
		enum question_kind kind = op == WIRE_STOP ? QUESTION_CONTROL : QUESTION_OTHER_VERSION;

		r = good((enum wire_op)op);
		r.version = WIRE_VERSION + 1;
		memset(&r.op + 1, 0xff, sizeof(r) - offsetof(struct wire_request, op) - 1);
		ck_assert_int_eq(question_check(&r, 9, false), kind);
		ck_assert_int_eq(question_check(&r, sizeof(r) + 100, false), kind);
		ck_assert_int_eq(question_check(&r, sizeof(r) + 100, true), QUESTION_OTHER_VERSION);
	}
	r = good(WIRE_STOP);
	r.version = WIRE_VERSION + 1;
	r.size = 8;
	ck_assert_int_eq(question_check(&r, 8, false), QUESTION_OTHER_VERSION);
	ck_assert_int_eq(question_check(&r, 7, false), QUESTION_MALFORMED);
	r.magic++;
	ck_assert_int_eq(question_check(&r, sizeof(r), true), QUESTION_MALFORMED);
}

TEST(sizes)
{
	struct wire_request r = good(WIRE_PING);

	for (int n = -1; n < 300; n++)
		ck_assert_int_eq(question_check(&r, n, false), n == sizeof(r) ? QUESTION_CONTROL : QUESTION_MALFORMED);
	for (unsigned n = 0; n <= UINT16_MAX; n++) {
		r.size = n;
		ck_assert_int_eq(question_check(&r, sizeof(r), false),
				 n == sizeof(r) ? QUESTION_CONTROL : QUESTION_MALFORMED);
	}
	/* Beside a text. */
	for (int wrong = 0; wrong < 4; wrong++) {
		r = good(WIRE_END_REST);
		r.size += wrong == 1;
		r.from = wrong == 2 ? -1 : 0;
		r.space = wrong == 3 ? WIRE_SPACES : WIRE_FLOCK;
		ck_assert_int_eq(question_check(&r, sizeof(r) + 1, false),
				 wrong ? QUESTION_MALFORMED : QUESTION_CONTROL);
	}
}

/* Each row spoils one field of a good question. */
static const struct {
	const char *what;
	size_t at;
	int64_t value;
	size_t bytes;
	bool ok;
} fields[] = {
#define FIELD(name, v) #name " = " #v, offsetof(struct wire_request, name), v, sizeof(((struct wire_request *)0)->name)
	{FIELD(magic, 0), false},
	{FIELD(magic, 0x646c666b), false}, /* the other byte order */
	{FIELD(space, WIRE_SPACES), false},
	{FIELD(space, 255), false},
	{FIELD(mode, WIRE_SHARED), true},
	{FIELD(mode, WIRE_MODES), false},
	{FIELD(mode, 255), false},
	{FIELD(owner, WIRE_OWNER_PROCESS), true},
	{FIELD(owner, WIRE_OWNERS), false},
	{FIELD(owner, 255), false},
	{FIELD(flags, WIRE_F_NONBLOCK), true},
	{FIELD(flags, WIRE_F_ALL), true},
	{FIELD(flags, 4), false},
	{FIELD(flags, 0x80), false},
	{FIELD(reserved[0], 1), false},
	{FIELD(reserved[1], 1), false},
	{FIELD(reserved[2], 128), false},
	{FIELD(reserved_too, 1), false},
	{FIELD(thread, 1), true},
	{FIELD(thread, -1), false},
	{FIELD(call, 1), false}, /* of no thread */
	{FIELD(sent_ns, 0), true},
	{FIELD(sent_ns, INT64_MAX / 2), true},
	{FIELD(sent_ns, INT64_MAX / 2 + 1), false},
	{FIELD(sent_ns, INT64_MAX), false},
	{FIELD(sent_ns, -1), false},
	{FIELD(sent_ns, INT64_MIN), false},
	{FIELD(from, 1), false}, /* flock covers the whole file */
	{FIELD(from, -1), false},
	{FIELD(to, WIRE_EOF - 1), false},
	{FIELD(to, 0), false},
	{FIELD(to, -1), false},
};

static void set_field(void *at, size_t bytes, int64_t value)
{
	uint32_t four = value;
	uint8_t one = value;
	memcpy(at, bytes == 8 ? (void *)&value : bytes == 4 ? (void *)&four : (void *)&one, bytes);
}

TEST_EACH(field, ROWS(fields))
{
	struct wire_request r = good(WIRE_LOCK);
	set_field((char *)&r + fields[_i].at, fields[_i].bytes, fields[_i].value);
	ck_assert_msg((question_check(&r, sizeof(r), true) == QUESTION_LOCK) == fields[_i].ok, "%s", fields[_i].what);
}

static const struct {
	int64_t from, to;
	bool ok;
} ranges[] = {{0, 1, true},
	      {0, WIRE_EOF, true},
	      {5, 6, true},
	      {WIRE_EOF - 1, WIRE_EOF, true},
	      {WIRE_EOF, WIRE_EOF, false},
	      {5, 5, false},
	      {6, 5, false},
	      {-1, 5, false},
	      {INT64_MIN, INT64_MAX, false},
	      {0, 0, false},
	      {0, -1, false},
	      {INT64_MIN, INT64_MIN, false}};

TEST_EACH(range, ROWS(ranges))
{
	struct wire_request r = good(WIRE_LOCK);
	r.space = WIRE_RECORD;
	r.from = ranges[_i].from;
	r.to = ranges[_i].to;
	ck_assert_int_eq(question_check(&r, sizeof(r), true), ranges[_i].ok ? QUESTION_LOCK : QUESTION_MALFORMED);
}
