/* Starts a keeper that is no child of this process, and waits until it serves. */
#ifndef DFLOCK_CLI_START_H
#define DFLOCK_CLI_START_H

#include "cli/ask.h"

/*
 * ask_connect(); if no keeper runs, starts one with place's configuration and connects to that one. 0, or -errno with
 * one line in why. *started: a keeper was started. ask->dir is filled as by ask_connect(). Waits up to ASK_DEADLINE_S.
 */
int start_connect(const struct place *place, struct ask *ask, bool *started, char why[CLI_LINE_BYTES]);

#endif
