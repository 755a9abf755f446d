/*
 * Connections that epoll does not watch: those that are new, or have just asked. Most callers ask, are granted, and hang up within a fraction of a millisecond.
 * To watch such a connection takes a system call, and its end would wake the keeper, mostly on the processor on which the program
 * goes on. So a connection whose question has come is looked at later, together with others: unwatched.c says when. Loop only.
 */
#ifndef DFLOCK_KEEPER_UNWATCHED_H
#define DFLOCK_KEEPER_UNWATCHED_H

struct keeper;

/* For the loop of k, which has sessions. 0 or -ENOMEM. */
int unwatched_start(struct keeper *k);
/* Once the loop has run for the last time. */
void unwatched_free(struct keeper *k);

/* A session may be unwatched now: after session_new() and session_reported(). */
void unwatched_came(struct keeper *k);

/* Looks at all of them: closes those whose peers have hung up, and has epoll watch the others. Returns how many it closed. The
 * caller settles. */
unsigned unwatched_look(struct keeper *k);

#endif
