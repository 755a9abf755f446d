/*
 * Linked into what is built with SAN=1. A keeper that a program starts has /dev/null for its standard error and a clean
 * environment, so a report would be lost: it goes into a file below the build folder, where the tests look for it
 * (tests/conftest.py) and fail.
 */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
const char *__lsan_default_options(void);

const char *__asan_default_options(void) { return "log_path=" SAN_REPORTS "/report"; }
const char *__ubsan_default_options(void) { return "print_stacktrace=1:log_path=" SAN_REPORTS "/report"; }
const char *__lsan_default_options(void) { return "print_suppressions=0"; }

/* What is there until the process ends, though nothing refers to it at exit: the parent's freezer, and what a keeper has that could not
 * start. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void) { return "leak:freeze_new\nleak:keeper_run\n"; }
