/*
 * process.h - executions that are processes: source file and build directory, compile step, run step, their
 * pipes and limits, and the end of the whole process tree. An execution ends when its main process has ended:
 * background processes are killed then, so that a pipe one of them holds open delays nothing.
 */
#pragma once

#include "runner/execution.h"

/* Starts it at once. Whatever fails becomes the execution's END. */
void process_run(struct execution *x);
