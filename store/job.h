/*
 * A job, as a host names it to other hosts: pid, command name and a time. What comes from the store may be anything: the
 * result is bounded, and its command printable. Pure.
 */
#ifndef DFLOCK_STORE_JOB_H
#define DFLOCK_STORE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#define JOB_COMMAND_BYTES 16 /* the kernel's name of a process: 15 bytes and NUL */
#define JOB_TEXT_BYTES    64

struct store_job {
	int pid;                         /* in the pid namespace of its keeper; 0: not known, or not told */
	int64_t since;                   /* Unix time in seconds by its host's clock; 0: not known */
	char command[JOB_COMMAND_BYTES]; /* printable (text_make_printable()); "": not known. Never with arguments */
};

/* "PID SINCE COMMAND"; "" for a job without pid. A job of any content: it is made printable. */
void job_format(char text[JOB_TEXT_BYTES], const struct store_job *job);
/* The way back; false, and *out empty: the text is no such text. */
bool job_parse(const char *text, struct store_job *out);

#endif
