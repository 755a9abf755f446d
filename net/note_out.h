/* For which thread the lines of this one are written (shim/note.h). */
#ifndef DFLOCK_NET_NOTE_OUT_H
#define DFLOCK_NET_NOTE_OUT_H

#include "net/thread.h"

/* From now on, the lines that this thread of the supervisor writes go to descriptor 2 of `t`; NULL: they are lost. */
void note_out_for(const struct thread *t);

#endif
