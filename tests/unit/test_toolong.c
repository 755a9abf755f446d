/* keeper/leases/toolong.c: whose turn it is to be looked at. What a look finds, and what is reported, is here. */
#include "keeper/leases/toolong.c"

#include "keeper/leases/pagefile.h"
#include "tests/unit/suite.h"

#define WARN_MS 1000

static struct table table;
static struct config config;
static struct keeper k;
static struct survey *asked;
static const char *reported;

unsigned table_frozen(const struct table *of) { return 0; }
bool host_is_unsure(const struct keeper *of) { return false; }
void table_notify(const struct table *of) { ck_abort(); }
void event_take_deeds(struct keeper *of) {}
void leasepage_close_lock(struct lock *of) {}

void event_raise(struct keeper *of, const struct event *e, const char *format, ...) { reported = e->name; }

int survey_ask(struct keeper *of, struct survey *survey)
{
	asked = survey;
	return 0;
}

const struct claim *survey_claim(const struct survey *survey, const struct holder *h, size_t *next)
{
	const struct claim *claim;

	for (size_t i = 0; i < claims_count(&survey->claims); i++) {
		claim = claims_at(&survey->claims, i);
		if (claim->file.ino == h->file)
			return claim;
	}
	return NULL;
}

static struct file *make(uint64_t ino, const char *name)
{
	const struct stat st = {.st_dev = 1, .st_ino = ino};
	struct file *file;

	ck_assert_int_eq(file_get(&k.members[0], &st, true, name, name, -1, &file), 0);
	file->warn_after_ms = WARN_MS;
	return file;
}

/* So many locks on the file, which this process took. */
static void found(uint64_t ino, pid_t pid, unsigned count)
{
	const struct holder h = {.file = ino, .pid = pid, .locker = pid, .command = ""};

	while (count--)
		ck_assert_int_eq(asked->row(asked, &h), 0);
}

static void look(void)
{
	struct survey *survey;

	k.ages.ran_ns += 2 * WARN_MS * NS_PER_MS;
	k.toolong.rest_until_ns = 0;
	toolong_tick(&k.toolong.timer);
	survey = asked;
	ck_assert_ptr_nonnull(survey);
	found(1, 5, TOOLONG_LINES + 1);
	found(2, 6, 1);
	asked = NULL;
	claims_free(&survey->claims);
	survey->done(survey);
}

/* A process has more locks than a look has room for, and gets one of them anew all the time, so that it is always due, and comes first. */
TEST(one_file_keeps_no_other_from_being_reported)
{
	struct file *crowd, *other;

	k = (struct keeper){
		.member_count = 1, .members[0].keeper = &k, .table = &table, .config = &config, .dir_fd = -1};
	k.toolong.on = true;
	k.toolong.timer.data = &k;
	crowd = make(1, "crowd");
	other = make(2, "other");
	ages_tick(&k, false);
	ages_note_granted(&other->locks[WIRE_FLOCK], 6, 0, 0);
	for (int i = 0; i < 4 && (!reported || strcmp(reported, "other") != 0); i++) {
		ages_note_granted(&crowd->locks[WIRE_FLOCK], 5, 0, 0);
		look();
	}
	ck_assert_str_eq(reported, "other");
	file_free(crowd);
	file_free(other);
}
