// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests which CPUs an operation reaches: all that run a thread of this process, and no others. The module counts them. The kernel's own
 * counters in /proc/interrupts show that the interrupts came before the operation returned.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "check.h"

#define MOST_CPUS 256
#define ROUNDS 5
#define ATTEMPTS 100

enum state { SPIN, SLEEP, END };
static atomic_int state, spinning, asleep;

static void *receiver(void *cpu)
{
	pin((int)(intptr_t)cpu);
	atomic_fetch_add(&spinning, 1);
	while (atomic_load(&state) == SPIN)
		;
	atomic_fetch_add(&asleep, 1);
	while (atomic_load(&state) == SLEEP)
		usleep(200000);
	return NULL;
}

/* Reads the function call interrupts of each CPU so far. False if the kernel does not show them. */
static bool interrupts(unsigned long *counts, int cpus)
{
	static char line[MOST_CPUS * 16];
	FILE *file = fopen("/proc/interrupts", "re");
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		char *at = strstr(line, "CAL:");
		int cpu;

		if (!at)
			continue;
		at += strlen("CAL:");
		for (cpu = 0; cpu < cpus; cpu++)
			counts[cpu] = strtoul(at, &at, 10);
		found = true;
	}
	fclose(file);
	return found;
}

/*
 * Executes operations in this way. Returns the number of those after which some CPU had not been interrupted. A CPU that runs a kernel
 * thread during an operation is no receiver. Such an operation does not count, and is repeated up to a limit.
 */
static int unreached(int way, int cpus)
{
	unsigned long before[MOST_CPUS], after[MOST_CPUS];
	struct still_mb_request request;
	int attempt, cpu, done = 0, wrong = 0;

	for (attempt = 0; attempt < ATTEMPTS && done < ROUNDS; attempt++) {
		bool reached = interrupts(before, cpus) && !barrier(&ways[way], 0, &request) &&
			       interrupts(after, cpus);

		if (reached && request.receivers < (__u32)(cpus - 1))
			continue;
		for (cpu = 1; cpu < cpus; cpu++)
			reached = reached && after[cpu] > before[cpu];
		wrong += !reached;
		done++;
	}
	return wrong + ROUNDS - done;
}

/* Tests each way with no message refused, with every message refused, and with every second message refused. */
static void check_spinning(int cpus)
{
	unsigned int every;
	int way, wrong = 0;

	for (every = 0; every <= 2; every++) {
		set_parameter("refuse_every", every);
		for (way = 0; way < way_count; way++) {
			int count = unreached(way, cpus);

			if (count)
				failed("receivers are interrupted", "%s, refuse_every %u: not all of the %d receivers were "
				       "interrupted in %d of %d operations", ways[way].name, every, cpus - 1, count, ROUNDS);
			wrong += count;
		}
	}
	set_parameter("refuse_every", 0);
	if (!wrong)
		passed("receivers are interrupted", "all %d in each of %d operations, by the kernel's counters; two thirds "
		       "of them with refused messages", cpus - 1, 3 * way_count * ROUNDS);
}

/* A CPU on which a thread sleeps keeps the page tables of the process until another process runs there. */
static void check_sleeping(void)
{
	const struct way tree = { "tree", STILL_MB_TREE, 0, 0, 0 };
	uint64_t end = now_ns() + 20000000000ull;
	struct still_mb_request without = { .receivers = 1 }, with = { 0 };
	int error = 0;

	/* The threads wake from time to time, and kernel threads also run. Wait for a moment at which all threads are asleep. */
	while (!error && (without.receivers || !with.receivers) && now_ns() < end) {
		error = barrier(&tree, 0, &without);
		if (!error)
			error = barrier(&tree, STILL_MB_INCLUDE_LAZY, &with);
		usleep(10000);
	}
	if (error || without.receivers || !with.receivers)
		failed("sleepers are left out", "%s; %u receivers, %u with lazy ones", strerror(error),
		       without.receivers, with.receivers);
	else
		passed("sleepers are left out", "no receiver, and %u with lazy ones", with.receivers);
}

void check_reach(void)
{
	const struct way tree = { "tree", STILL_MB_TREE, 0, 0, 0 };
	pthread_t threads[MOST_CPUS];
	struct still_mb_request request;
	struct still_mb_info info;
	int cpus = online_cpus(), cpu, error;
	uint64_t end;

	if (cpus < 2 || cpus > MOST_CPUS || ioctl(device, STILL_MB_IOC_INFO, &info) != 0) {
		skipped("receivers are interrupted", "it needs 2 to 256 CPUs");
		return;
	}
	atomic_store(&state, SPIN);
	for (cpu = 1; cpu < cpus; cpu++)
		pthread_create(&threads[cpu], NULL, receiver, (void *)(intptr_t)cpu);
	while (atomic_load(&spinning) < cpus - 1)
		usleep(1000);
	check_spinning(cpus);
	atomic_store(&state, SLEEP);
	while (atomic_load(&asleep) < cpus - 1)
		usleep(1000);
	if (info.skips_lazy)
		check_sleeping();
	else
		skipped("sleepers are left out", "the module interrupts lazy CPUs of this kernel");
	atomic_store(&state, END);
	for (cpu = 1; cpu < cpus; cpu++)
		pthread_join(threads[cpu], NULL);
	if (!info.skips_lazy)
		return;
	end = now_ns() + 20000000000ull;
	/* A thread that was joined may still have to execute its last instructions in the kernel. */
	do {
		error = barrier(&tree, 0, &request);
	} while (!error && request.receivers && now_ns() < end && usleep(10000) == 0);
	if (error || request.receivers)
		failed("threads that ended receive nothing", "%s; %u receivers", strerror(error), request.receivers);
	else
		passed("threads that ended receive nothing", "no receiver");
}
