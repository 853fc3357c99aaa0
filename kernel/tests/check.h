/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the tests of the module. */
#ifndef CHECK_H
#define CHECK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../include/stillpoint_membarrier.h"
#include "../plan.h"

/* A way to call the module, with a name for messages. */
struct way {
	const char *name;
	__u32 strategy, flags, percent, threshold;
};

/* Each strategy with both kinds of acknowledgement, and hybrids on both sides of their threshold. */
extern const struct way ways[];
extern const int way_count;

/* Prints a line of the result: the promise that was checked, and how much was checked. */
void passed(const char *promise, const char *format, ...) __attribute__((format(printf, 2, 3)));
void failed(const char *promise, const char *format, ...) __attribute__((format(printf, 2, 3)));
void skipped(const char *promise, const char *reason);
/* Prints a row that was measured: strategy, frequency asked for, grace periods, sections, seconds. */
void rate(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The descriptor of the device. Without a device the tests end. */
extern int device;
void open_device(void);

/* Executes a barrier in this way, with additional flags. Returns 0 or an error number. */
int barrier(const struct way *way, __u32 more_flags, struct still_mb_request *request);

/* Whether the tests are the first process, and so the only ones on the machine. */
bool alone(void);
/* Whether the tests may disturb other users of the machine, by interrupting all CPUs and refusing messages. */
extern bool disturb;
/* Whether the module's count is wrong. If there are other users, it may be larger than the tests' own count. */
bool miscounted(__u64 counted, __u64 own);

void pin(int cpu);
int online_cpus(void);
int set_online(int cpu, bool online);
uint64_t now_ns(void);
/* Sets a parameter of the module. It is set back to 0 if a signal ends the tests. */
void set_parameter(const char *name, unsigned int value);

/* Runs a program to its end. Returns its exit code, or -1. `text` gets the last part of its output and error messages. */
int run(const char *program, char *const arguments[], char *const environment[], char *text, size_t size);
/* Makes the text one line, for a result. */
void flatten(char *text);
/* Describes what the module counted between two readings: barriers, and the interrupts and depth of each. */
const char *counted(const struct still_mb_info *before, const struct still_mb_info *after);

void check_interface(void);
void check_errors(void);
/* For every number of receivers if CPUs may be taken offline, otherwise for all CPUs. */
void check_counters(bool hotplug);
void check_refusals(void);
void check_reach(void);
void check_flush(void);
void check_litmus(double seconds, long entries);
void check_concurrency(double seconds);
void check_hotplug(double seconds);
void check_liburcu(double seconds);
void check_library(double seconds);
/* Loads the module. Only the first process of a machine loads and unloads it. */
bool load_module(void);
void check_unload(void);
void check_log(void);

#endif
