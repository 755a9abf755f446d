/* keeper/fronts/question.c: which questions make sense, and what each kind of operation may have with it. */
#include "keeper/fronts/question.h"

#include "tests/unit/good_question.h"
#include "tests/unit/suite.h"

TEST(good_ones)
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

TEST(descriptor_and_operation)
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

TEST(other_version)
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

TEST(sizes)
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

TEST(with_a_text)
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

TEST(which_have_a_text)
{
	struct wire_request sent = good(WIRE_BREAK);

	for (unsigned op = 0; op < 256; op++) {
		bool has = op == WIRE_WHO || op == WIRE_BREAK || op == WIRE_END_REST || op == WIRE_GIVE_UP ||
			   op == WIRE_LOG_LEVEL;
		struct wire_request r = good(op);

		ck_assert_int_eq(question_check(&r, sizeof(r) + 1, false), has ? QUESTION_CONTROL : QUESTION_MALFORMED);
		ck_assert_int_eq(question_check(&r, sizeof(r) + 1, true), QUESTION_MALFORMED);
	}
	sent.from = -1;
	ck_assert_int_eq(question_check(&sent, sizeof(sent) + 1, false), QUESTION_MALFORMED);
	sent = good(WIRE_END_REST);
	sent.space = WIRE_SPACES;
	ck_assert_int_eq(question_check(&sent, sizeof(sent) + 1, false), QUESTION_MALFORMED);
}

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
	FIELD(reserved_too, 1, false),
	FIELD(thread, 1, true),
	FIELD(thread, -1, false),
	FIELD(call, 1, false), /* of no thread */
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

TEST_EACH(field, ROWS(fields))
{
	struct wire_request r = good(WIRE_LOCK);

	set_field((char *)&r + fields[_i].at, fields[_i].bytes, fields[_i].value);
	ck_assert_msg((question_check(&r, sizeof(r), true) == QUESTION_LOCK) == fields[_i].ok, "%s", fields[_i].what);
}

TEST(ranges)
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
