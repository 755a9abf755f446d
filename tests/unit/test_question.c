/* keeper/fronts/question.c: what a hostile program may send, and that no descriptor stays behind. */
#include "keeper/fronts/question.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/open_count.h"
#include "tests/unit/suite.h"

#define MANY 253 /* descriptors in one message: the kernel's limit */

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

/* --- receiving --- */

/* A possible question comes with one descriptor or none; closes the descriptors that come with anything else. */
static ssize_t receive(struct wire_request *r, int *fd)
{
	struct question question = {.text = ""};
	struct question_fds came;
	ssize_t n = question_receive(ours, &question, &came);

	*r = question.request;

	ck_assert_uint_le(came.count, QUESTION_FDS);
	*fd = n > 0 && came.count ? came.fds[0] : -1;
	ck_assert(n <= 0 || came.count <= 1);
	for (unsigned i = 0; i < came.count && n <= 0; i++)
		close(came.fds[i]);
	return n;
}

START_TEST(nothing_yet)
{
	struct wire_request r;
	int fd = 99;

	ck_assert_int_eq(receive(&r, &fd), -EAGAIN);
	ck_assert_int_eq(fd, -1);
}
END_TEST

START_TEST(peer_gone)
{
	struct wire_request r;
	int fd = 99;

	close(theirs);
	ck_assert_int_eq(receive(&r, &fd), 0);
	ck_assert_int_eq(fd, -1);
	theirs = dup(ours);
}
END_TEST

START_TEST(one_descriptor)
{
	struct wire_request sent = good(WIRE_LOCK), r = {0};
	int fd = -1;

	send_message(&sent, sizeof(sent), 1);
	ck_assert_int_eq(receive(&r, &fd), sizeof(sent));
	ck_assert_mem_eq(&r, &sent, sizeof(r));
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(count_open(), before + 1);
	close(fd);
	send_message(&sent, sizeof(sent), 0);
	ck_assert_int_eq(receive(&r, &fd), sizeof(sent));
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(count_open(), before);
}
END_TEST

START_TEST(too_many_descriptors)
{
	static const size_t counts[] = {2, 3, 4, 5, 6, MANY};
	struct wire_request sent = good(WIRE_LOCK), r;
	int fd = 99;

	send_message(&sent, sizeof(sent), counts[_i]);
	ck_assert_int_eq(receive(&r, &fd), -EBADMSG);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(count_open(), before);
	/* The next message of an honest peer is not affected. */
	send_message(&sent, sizeof(sent), 1);
	ck_assert_int_eq(receive(&r, &fd), sizeof(sent));
	close(fd);
}
END_TEST

/* Its length is 0, as if the peer had gone, and yet a descriptor comes with it. */
START_TEST(empty_message)
{
	struct wire_request r;
	int fd = 99;

	send_message("", 0, _i);
	ck_assert_int_eq(receive(&r, &fd), _i > 1 ? -EBADMSG : 0);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(count_open(), before);
}
END_TEST

/* What is longer than a question may be is cut off, and its length says so; a text always ends with NUL. */
static void check_length(size_t n)
{
	static unsigned char bytes[sizeof(struct question) + 100];
	struct wire_request sent = good(WIRE_LOCK);
	struct question_fds came;
	struct {
		struct question q;
		char guard[16];
	} in;
	size_t text = n > sizeof(sent) ? n - sizeof(sent) : 0;

	memset(bytes, 0xee, sizeof(bytes));
	memcpy(bytes, &sent, sizeof(sent));
	memset(&in, 0x5a, sizeof(in));
	send_message(bytes, n, 1);
	ck_assert_int_eq(question_receive(ours, &in.q, &came), (ssize_t)n);
	ck_assert_uint_eq(came.count, 1);
	close(came.fds[0]);
	for (size_t i = 0; i < sizeof(in.guard); i++)
		ck_assert_int_eq(in.guard[i], 0x5a);
	if (n >= sizeof(sent))
		ck_assert_uint_eq(strlen(in.q.text), text < WIRE_TEXT_BYTES ? text : WIRE_TEXT_BYTES - 1);
	ck_assert_int_eq(question_check(&in.q.request, n, true),
			 n == sizeof(sent) ? QUESTION_LOCK : QUESTION_MALFORMED);
}

START_TEST(every_length)
{
	for (size_t n = 1; n <= 2 * sizeof(struct wire_request); n++)
		check_length(n);
	for (size_t n = sizeof(struct question) - 2; n <= sizeof(struct question) + 100; n += 17)
		check_length(n);
}
END_TEST

START_TEST(with_a_text)
{
	struct wire_request r = good(WIRE_WHO);

	ck_assert_int_eq(question_check(&r, sizeof(r), false), QUESTION_MALFORMED);
	ck_assert_int_eq(question_check(&r, sizeof(r) + 1, false), QUESTION_CONTROL);
	ck_assert_int_eq(question_check(&r, sizeof(struct question) - 1, false), QUESTION_CONTROL);
	ck_assert_int_eq(question_check(&r, sizeof(struct question), false), QUESTION_MALFORMED); /* no room for NUL */
	ck_assert_int_eq(question_check(&r, sizeof(r) + 1, true), QUESTION_MALFORMED);
	r.size++;
	ck_assert_int_eq(question_check(&r, sizeof(r) + 1, false), QUESTION_MALFORMED);
	for (r = good(WIRE_LOCK); r.op < WIRE_WHO; r.op++)
		ck_assert_int_eq(question_check(&r, sizeof(r) + 1, false), QUESTION_MALFORMED);
}
END_TEST

START_TEST(table_full)
{
	struct wire_request sent = good(WIRE_LOCK), r;
	struct rlimit limit, old;
	int fd = 99, top = dup(ours); /* the lowest free number */

	close(top);
	send_message(&sent, sizeof(sent), 1);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	limit = (struct rlimit){.rlim_cur = top, .rlim_max = old.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(receive(&r, &fd), -EMFILE);
	ck_assert_int_eq(fd, -1);
	/* Room for one of two. */
	send_message(&sent, sizeof(sent), 2);
	limit.rlim_cur = top + 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(receive(&r, &fd), -EBADMSG);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	ck_assert_int_eq(count_open(), before);
}
END_TEST

/* --- checking --- */

START_TEST(good_ones)
{
	struct wire_request r = good(WIRE_LOCK);

	ck_assert_int_eq(question_check(&r, sizeof(r), true), QUESTION_LOCK);
	r.op = WIRE_TEST;
	ck_assert_int_eq(question_check(&r, sizeof(r), true), QUESTION_LOCK);
	r.op = WIRE_HELD;
	ck_assert_int_eq(question_check(&r, sizeof(r), true), QUESTION_LOCK);
	for (r.op = WIRE_STATUS; r.op < WIRE_HELD; r.op++)
		ck_assert_int_eq(question_check(&r, sizeof(r), false),
				 r.op == WIRE_BEFORE ? QUESTION_BEFORE : QUESTION_CONTROL);
}
END_TEST

START_TEST(descriptor_and_operation)
{
	for (unsigned op = 0; op < 256; op++) {
		struct wire_request r = good(op);
		bool lock = op == WIRE_LOCK || op == WIRE_TEST || op == WIRE_HELD;
		bool control = ((op > 0 && op < WIRE_WHO) || op == WIRE_METRICS) && !lock && op != WIRE_BEFORE;
		enum question_kind without = control             ? QUESTION_CONTROL
					     : op == WIRE_BEFORE ? QUESTION_BEFORE
								 : QUESTION_MALFORMED;

		ck_assert_int_eq(question_check(&r, sizeof(r), true), lock ? QUESTION_LOCK : QUESTION_MALFORMED);
		ck_assert_int_eq(question_check(&r, sizeof(r), false), without);
	}
}
END_TEST

START_TEST(other_version)
{
	struct wire_request r = good(WIRE_LOCK);

	for (unsigned v = 0; v <= UINT16_MAX; v += v < 10 ? 1 : 97) {
		enum question_kind other = v == WIRE_VERSION ? QUESTION_LOCK : QUESTION_OTHER_VERSION;

		r.version = v;
		ck_assert_int_eq(question_check(&r, sizeof(r), true), other);
	}
	/* Any version may tell the keeper to end, and nothing else. */
	for (int op = 0; op < 256; op++) {
		r = good((enum wire_op)op);
		r.version = WIRE_VERSION + 1;
		memset(&r.op + 1, 0xff, sizeof(r) - offsetof(struct wire_request, op) - 1);
		ck_assert_int_eq(question_check(&r, 9, false),
				 op == WIRE_STOP ? QUESTION_CONTROL : QUESTION_OTHER_VERSION);
		ck_assert_int_eq(question_check(&r, sizeof(r) + 100, false),
				 op == WIRE_STOP ? QUESTION_CONTROL : QUESTION_OTHER_VERSION);
		ck_assert_int_eq(question_check(&r, sizeof(r), true), QUESTION_OTHER_VERSION);
	}
	r = good(WIRE_STOP);
	r.version = WIRE_VERSION + 1;
	r.size = 8;
	ck_assert_int_eq(question_check(&r, 8, false), QUESTION_OTHER_VERSION);
	ck_assert_int_eq(question_check(&r, 7, false), QUESTION_MALFORMED);
	r.magic++;
	ck_assert_int_eq(question_check(&r, sizeof(r), true), QUESTION_MALFORMED);
}
END_TEST

/* A later version may ask longer questions: it is told so, and not just disconnected. */
START_TEST(longer_other_version)
{
	struct {
		struct wire_request r;
		char more[100];
	} sent = {.r = good(WIRE_LOCK)};
	struct wire_request r;
	ssize_t n;
	int fd;

	sent.r.version++;
	sent.r.size = sizeof(sent);
	send_message(&sent, sizeof(sent), 1);
	n = receive(&r, &fd);
	ck_assert_int_eq(n, sizeof(sent));
	ck_assert_int_eq(question_check(&r, n, fd >= 0), QUESTION_OTHER_VERSION);
	close(fd);
}
END_TEST

START_TEST(sizes)
{
	struct wire_request r = good(WIRE_PING);

	for (unsigned n = 0; n < 300; n++)
		ck_assert_int_eq(question_check(&r, n, false), n == sizeof(r) ? QUESTION_CONTROL : QUESTION_MALFORMED);
	ck_assert_int_eq(question_check(&r, -1, false), QUESTION_MALFORMED);
	for (unsigned n = 0; n <= UINT16_MAX; n++) {
		r.size = n;
		ck_assert_int_eq(question_check(&r, sizeof(r), false),
				 n == sizeof(r) ? QUESTION_CONTROL : QUESTION_MALFORMED);
	}
}
END_TEST

/* ---- a text behind the question ---- */

START_TEST(a_text_follows)
{
	struct {
		struct wire_request r;
		char text[WIRE_TEXT_BYTES + 10];
	} sent = {.r = good(WIRE_BREAK)};
	static const size_t lengths[] = {0, 1, 100, WIRE_TEXT_BYTES - 1, WIRE_TEXT_BYTES, WIRE_TEXT_BYTES + 10};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct question question = {.text = ""};
		struct question_fds came;
		bool fits = lengths[i] > 0 && lengths[i] < WIRE_TEXT_BYTES;
		ssize_t n;

		memset(sent.text, 'x', lengths[i]);
		send_message(&sent, sizeof(sent.r) + lengths[i], 0);
		n = question_receive(ours, &question, &came);
		ck_assert_int_eq(n, (ssize_t)(sizeof(sent.r) + lengths[i]));
		ck_assert_int_eq(question_check(&question.request, n, false),
				 fits ? QUESTION_CONTROL : QUESTION_MALFORMED);
		ck_assert_uint_eq(strlen(question.text),
				  lengths[i] < WIRE_TEXT_BYTES ? lengths[i] : WIRE_TEXT_BYTES - 1);
	}
	for (unsigned op = 0; op < 256; op++) { /* others have none */
		bool has = op == WIRE_WHO || op == WIRE_BREAK || op == WIRE_END_REST || op == WIRE_GIVE_UP;
		struct wire_request r = good(op);

		ck_assert_int_eq(question_check(&r, sizeof(r) + 1, false), has ? QUESTION_CONTROL : QUESTION_MALFORMED);
		ck_assert_int_eq(question_check(&r, sizeof(r) + 1, true), QUESTION_MALFORMED);
	}
	sent.r.from = -1;
	ck_assert_int_eq(question_check(&sent.r, sizeof(sent.r) + 1, false), QUESTION_MALFORMED);
	sent.r = good(WIRE_END_REST);
	sent.r.space = WIRE_SPACES;
	ck_assert_int_eq(question_check(&sent.r, sizeof(sent.r) + 1, false), QUESTION_MALFORMED);
}
END_TEST

/* Each row spoils one field of a good question. */
static const struct {
	const char *what;
	size_t at;
	int64_t value;
	size_t bytes;
	bool ok;
} fields[] = {
#define FIELD(name, v, good)                                                                                           \
	{                                                                                                              \
#name " = " #v, offsetof(struct wire_request, name), v, sizeof(((struct wire_request *)0)->name), good \
	}
	FIELD(magic, 0, false),
	FIELD(magic, 0x646c666b, false), /* the other byte order */
	FIELD(space, WIRE_SPACES, false),
	FIELD(space, 255, false),
	FIELD(mode, WIRE_SHARED, true),
	FIELD(mode, WIRE_MODES, false),
	FIELD(mode, 255, false),
	FIELD(owner, WIRE_OWNER_PROCESS, true),
	FIELD(owner, WIRE_OWNERS, false),
	FIELD(owner, 255, false),
	FIELD(flags, WIRE_F_NONBLOCK, true),
	FIELD(flags, WIRE_F_ALL, true),
	FIELD(flags, 4, false),
	FIELD(flags, 0x80, false),
	FIELD(reserved[0], 1, false),
	FIELD(reserved[1], 1, false),
	FIELD(reserved[2], 128, false),
	FIELD(sent_ns, 0, true),
	FIELD(sent_ns, INT64_MAX / 2, true),
	FIELD(sent_ns, INT64_MAX / 2 + 1, false),
	FIELD(sent_ns, INT64_MAX, false),
	FIELD(sent_ns, -1, false),
	FIELD(sent_ns, INT64_MIN, false),
	FIELD(from, 1, false), /* flock covers the whole file */
	FIELD(from, -1, false),
	FIELD(to, WIRE_EOF - 1, false),
	FIELD(to, 0, false),
	FIELD(to, -1, false),
};

static void set_field(void *at, size_t bytes, int64_t value)
{
	uint32_t four = value;
	uint8_t one = value;

	memcpy(at, bytes == 8 ? (void *)&value : bytes == 4 ? (void *)&four : (void *)&one, bytes);
}

START_TEST(field)
{
	struct wire_request r = good(WIRE_LOCK);

	set_field((char *)&r + fields[_i].at, fields[_i].bytes, fields[_i].value);
	ck_assert_msg((question_check(&r, sizeof(r), true) == QUESTION_LOCK) == fields[_i].ok, "%s", fields[_i].what);
}
END_TEST

START_TEST(ranges)
{
	static const struct {
		int64_t from, to;
		bool ok;
	} rows[] = {{0, 1, true},
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

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct wire_request r = good(WIRE_LOCK);

		r.space = WIRE_RECORD;
		r.from = rows[i].from;
		r.to = rows[i].to;
		ck_assert_int_eq(question_check(&r, sizeof(r), true), rows[i].ok ? QUESTION_LOCK : QUESTION_MALFORMED);
	}
}
END_TEST

/* valgrind keeps RLIMIT_NOFILE to itself: the kernel never sees the table full. */
static bool under_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "vgpreload");
}

int main(void)
{
	Suite *suite = suite_create("question");
	TCase *receive = tcase_create("receive"), *check = tcase_create("check");

	tcase_add_checked_fixture(receive, setup, teardown);
	tcase_add_test(receive, nothing_yet);
	tcase_add_test(receive, peer_gone);
	tcase_add_test(receive, one_descriptor);
	tcase_add_loop_test(receive, too_many_descriptors, 0, 6);
	tcase_add_loop_test(receive, empty_message, 0, 3);
	tcase_add_test(receive, every_length);
	tcase_add_test(receive, with_a_text);
	if (!under_valgrind())
		tcase_add_test(receive, table_full);
	tcase_add_test(receive, longer_other_version);
	tcase_add_test(receive, a_text_follows);
	suite_add_tcase(suite, receive);
	tcase_add_test(check, good_ones);
	tcase_add_test(check, descriptor_and_operation);
	tcase_add_test(check, other_version);
	tcase_add_test(check, sizes);
	tcase_add_loop_test(check, field, 0, sizeof(fields) / sizeof(*fields));
	tcase_add_test(check, ranges);
	suite_add_tcase(suite, check);
	return suite_run(suite);
}
