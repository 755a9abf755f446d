/*
 * A configuration file in a folder of its own on a tmpfs, written and read. setup() and teardown() are the fixtures.
 */
#ifndef DFLOCK_TESTS_UNIT_CONFIG_FILE_H
#define DFLOCK_TESTS_UNIT_CONFIG_FILE_H

#include <limits.h>

#include "config/internal.h"
#include "tests/unit/base_folder.h"

static char file[96], why[PAGE_MESSAGE_BYTES];
static struct config *config;

static inline void setup(void)
{
	base_make();
	strcpy(file, in_base("c.conf"));
	ck_assert_int_eq(chdir(base), 0);
	config = NULL;
}

static inline void teardown(void)
{
	config_free(config);
	ck_assert_int_eq(chdir("/"), 0);
	base_remove();
}

static inline void write_bytes(const char *path, const char *bytes, size_t len)
{
	FILE *f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
	ck_assert_int_eq(fclose(f), 0);
}

/* Writes the configuration; %s in text stands for base, and a single quote for a double one. */
static inline void write_config(const char *text)
{
	FILE *f = fopen(file, "w");

	ck_assert_ptr_nonnull(f);
	for (const char *c = text; *c; c++)
		if (c[0] == '%' && c[1] == 's') {
			fputs(base, f);
			c++;
		} else
			putc(*c == '\'' ? '"' : *c, f);
	ck_assert_int_eq(fclose(f), 0);
}

#define THREE_STORES                                                                                                   \
	"store = { server = 'd'; };\n"                                                                                 \
	"stores = { pay_1 = { postgresql = 'dbname=d'; }; Hot-2 = { server = 'h:7000'; }; };\n"

static inline void read_ok(const char *text)
{
	config_free(config);
	config = NULL;
	write_config(text);
	ck_assert_msg(config_load(file, &config, why, sizeof(why)) == 0, "%s", why);
}

static inline void expect_refusal(const char *text, int line, const char *message)
{
	char expected[PAGE_MESSAGE_BYTES + 128];
	struct config *none = NULL;
	write_config(text);
	ck_assert_msg(config_load(file, &none, why, sizeof(why)) < 0, "accepted: %s", text);
	ck_assert_ptr_null(none);
	snprintf(expected, sizeof(expected), "%s:%d: %s", file, line, message);
	ck_assert_msg(strncmp(why, expected, strlen(expected)) == 0, "\nexpected %s\nfound    %s", expected, why);
	ck_assert_ptr_null(strchr(why, '\n'));
}

/* The example; main() reads it before a test changes the folder. */
static char example[65536];

static inline void read_example(void)
{
	FILE *f = fopen("config/dflock.conf", "r");
	if (!f) {
		fprintf(stderr, "config/dflock.conf is not there; run this from the top folder\n");
		exit(EXIT_FAILURE);
	}
	example[fread(example, 1, sizeof(example) - 1, f)] = '\0';
	fclose(f);
}

#endif
