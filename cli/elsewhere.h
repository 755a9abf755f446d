/*
 * What other hosts name or protect differently, from the keeper's status (its "elsewhere" object, or NULL). Any host that
 * can write to the store chooses this text: it is shown escaped, by show.h or doctor_find().
 */
#ifndef DFLOCK_CLI_ELSEWHERE_H
#define DFLOCK_CLI_ELSEWHERE_H

#include <jansson.h>
#include <stdio.h>

#include "cli/doctor.h"

/* A few lines, if there is any difference; for `dflock status`. */
void elsewhere_print(const json_t *elsewhere, FILE *f);
/* Each difference as a finding with both hosts' rules and what to do. */
void elsewhere_doctor(struct doctor *d, const json_t *elsewhere);

#endif
