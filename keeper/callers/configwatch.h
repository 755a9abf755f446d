/*
 * Looks at the configuration file once a second, in a worker: a mount that hangs must not stop the loop. What was
 * found goes to configfile.h. Sessions wait here for a look that began after their question: `dflock reload`, and
 * programs whose file is in a state that nobody has looked at. Loop only.
 */
#ifndef DFLOCK_KEEPER_CONFIGWATCH_H
#define DFLOCK_KEEPER_CONFIGWATCH_H

#include "keeper/keeper.h"

/* 0 or -ENOMEM. */
int configwatch_start(struct keeper *k);
/* A look that is under way ends in the loop. */
void configwatch_close(struct keeper *k);

/* `dflock reload`: answers when the look has ended. */
void configwatch_reload(struct session *s);
/* A question from a program that the keeper does not know to be its own: goes on with `then` if the next look shows
 * that it is, and refuses it else. What the session keeps for it meanwhile is lookup_leave()'s. */
void configwatch_question(struct session *s, void (*then)(struct session *s));

#endif
