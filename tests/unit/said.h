/* What the stand-ins for other modules were told, as words in the order in which they were told. */
#ifndef DFLOCK_TESTS_UNIT_SAID_H
#define DFLOCK_TESTS_UNIT_SAID_H

#include <check.h>
#include <stdio.h>
#include <string.h>

static char said[1024];

static inline void say(const char *word)
{
	size_t len = strlen(said);
	snprintf(said + len, sizeof(said) - len, "%s%s", len ? ", " : "", word);
}

/* What was said since the last time. */
#define check_said(words)                                                                                              \
	do {                                                                                                           \
		ck_assert_str_eq(said, words);                                                                         \
		said[0] = '\0';                                                                                        \
	} while (0)

#endif
