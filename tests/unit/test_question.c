/* keeper/fronts/question.c: receiving what a hostile program may send; no descriptor stays behind. */
#include "keeper/fronts/question.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/unit/good_question.h"
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

TEST(nothing_yet)
{
	struct wire_request r;
	int fd = 99;

	ck_assert_int_eq(receive(&r, &fd), -EAGAIN);
	ck_assert_int_eq(fd, -1);
}

TEST(peer_gone)
{
	struct wire_request r;
	int fd = 99;

	close(theirs);
	ck_assert_int_eq(receive(&r, &fd), 0);
	ck_assert_int_eq(fd, -1);
	theirs = dup(ours);
}

TEST(one_descriptor)
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

TEST_EACH(too_many_descriptors, 6)
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

/* Its length is 0, as if the peer had gone, and yet a descriptor comes with it. */
TEST_EACH(empty_message, 3)
{
	struct wire_request r;
	int fd = 99;

	send_message("", 0, _i);
	ck_assert_int_eq(receive(&r, &fd), _i > 1 ? -EBADMSG : 0);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(count_open(), before);
}

/* What is longer than a question may be is cut off, and its length says so; a text always ends with NUL. */
static void check_length(size_t n)
{
	static unsigned char bytes[sizeof(struct question) + 100];
	struct wire_request sent = good(WIRE_LOCK);
	struct passing came;
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

TEST(every_length)
{
	for (size_t n = 1; n <= 2 * sizeof(struct wire_request); n++)
		check_length(n);
	for (size_t n = sizeof(struct question) - 2; n <= sizeof(struct question) + 100; n += 17)
		check_length(n);
}

/* valgrind keeps RLIMIT_NOFILE to itself: the kernel never sees the table full. */
TEST(table_full)
{
	if (suite_under_valgrind())
		return;

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

/* A later version may ask longer questions: it is told so, and not just disconnected. */
TEST(longer_other_version)
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

TEST(a_text_follows)
{
	struct {
		struct wire_request r;
		char text[WIRE_TEXT_BYTES + 10];
	} sent = {.r = good(WIRE_BREAK)};
	static const size_t lengths[] = {0, 1, 100, WIRE_TEXT_BYTES - 1, WIRE_TEXT_BYTES, WIRE_TEXT_BYTES + 10};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct question question = {.text = ""};
		struct passing came;
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
}
