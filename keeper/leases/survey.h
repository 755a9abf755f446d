/*
 * Questions which processes have which locks: one worker takes one census (census.h) at a time, for all questions that
 * wait then. A question that comes meanwhile shares the next one, so each answer is of a search that began after its
 * question. A search is followed by a pause: so questions, however many, take at most a third of the time of one
 * processor; lazy ones, which are about what nobody waits for, a twentieth, and there is at most one search a second for them.
 *
 * The processes may have ended, and others may have got the lock, when the answer is read.
 *
 * Loop only, but for row() and end().
 */
#ifndef DFLOCK_KEEPER_SURVEY_H
#define DFLOCK_KEEPER_SURVEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "keeper/kernel/claims.h"
#include "keeper/kernel/holders.h"

struct keeper;

/* One question: the asker's, and part of its own struct. It stays until done(). Begin with {0}. */
struct survey {
	struct claims claims; /* what it is about: claims_add(). survey_ask()'s from then on */
	bool lazy, commands;  /* commands: HOLDERS_COMMANDS */
	/* Beside very many descriptors, a search ends with -ETIME when it has looked at all processes but for those with the most, and some
	 * seconds are over: some more for a patient question, which is of no use without them. One with lazy questions only ends so when
	 * another question waits. */
	bool patient;
	/* Loop, when the search begins: a last chance to add claims. 0 or -errno. May be NULL. */
	int (*begin)(struct survey *survey);
	/* In the worker: one lock of one process, of whatever claims (survey_claim()). 0, or -errno: no more rows. */
	int (*row)(struct survey *survey, const struct holder *holder);
	/* In the worker, after all rows. 0 or -errno. May be NULL. */
	int (*end)(struct survey *survey);
	/* Loop, once, not from inside survey_ask(). May ask again. */
	void (*done)(struct survey *survey);
	/* For done(): */
	int error;      /* 0; -ECANCELED: the keeper ends; else -errno: then there may be more than what was told */
	size_t unseen;  /* processes that could not be looked into */
	int64_t ran_ns; /* on a processor */
	/* survey.c's: */
	struct surveys *all;
	struct survey *prev, *next;
};

/* Part of struct keeper. */
struct surveys {
	struct keeper *keeper;
	uv_work_t work;
	uv_timer_t timer;
	struct survey *waiting, *running;
	struct claims claims; /* of all that run */
	pid_t self;
	int64_t until_ns;      /* atomic: this search */
	int64_t not_before_ns; /* the next search */
	int64_t lazy_ns;       /* the next one with lazy questions */
	bool stopped;
};

void survey_start(struct keeper *k);
/* Questions that wait are done with -ECANCELED; those of a search that runs are done from the loop. */
void survey_stop(struct keeper *k);

/* 0; -ECANCELED after survey_stop(): then done() is not called. */
int survey_ask(struct keeper *k, struct survey *survey);

/* For row(): the survey's own claims that the lock is under. *next is SIZE_MAX for the first call. NULL: no more. */
const struct claim *survey_claim(const struct survey *survey, const struct holder *holder, size_t *next);

#endif
