/*
 * Where the lines of note.h go. note_out.c is linked into libdflock.so; dflock-net, which writes for the threads of other
 * programs, has these functions in net/note_out.c. Callable wherever note_line() is; errno may change.
 */
#ifndef DFLOCK_SHIM_NOTE_OUT_H
#define DFLOCK_SHIM_NOTE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* May a line be written that is about the lock call on `fd` (or NOTE_JOB)? note.h says when not. */
bool note_out_may(int fd);

/* The process that the lines are about. */
pid_t note_out_pid(void);

/* Writes it with one call, or not at all if that would wait. Only after note_out_may(). */
void note_out_write(const char *line, size_t len);

#endif
