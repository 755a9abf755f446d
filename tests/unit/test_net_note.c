/* net/note_out.c: a line of the net goes to what descriptor 2 was when it was judged. */
#include <fcntl.h>
#include <unistd.h>

/* dflock-net is no part of the library that unit tests are linked with. */
#include "net/note_out.c"
#include "shim/note.c"
#include "tests/unit/suite.h"

struct shared *shared;
static int outs[2], copies;

/* The program opens something else under this number after each copy. */
int thread_copy_for_messages(const struct thread *t) { return dup(outs[copies++ ? 1 : 0]); }

const struct settings *settings_get(void) { return NULL; }
long name_link(int fd, char *name, size_t size) { return -1; }

TEST(one_look_at_the_descriptor)
{
	char text[64] = "";
	int ends[2], data[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(pipe2(data, O_NONBLOCK), 0);
	outs[0] = ends[1];
	outs[1] = data[1];
	note_out_for((const struct thread *)&outs);
	note_line(NOTE_JOB, "a line");
	note_out_for(NULL);
	ck_assert_int_gt(read(ends[0], text, sizeof(text) - 1), 0);
	ck_assert_str_eq(text, "dflock: a line\n");
	ck_assert_int_eq(copies, 1);
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(data[i]);
	}
}
