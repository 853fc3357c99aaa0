// SPDX-License-Identifier: GPL-2.0-only
/*
 * An ordinary program that uses liburcu, and not the module. A writer replaces an object, waits for a grace period, and poisons the old
 * object. No reader may see the poison. The program prints what the writer and the readers did.
 *
 *	urcu CPUS SECONDS [early]	early: the writer waits for no grace period, and readers should see the poison
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <urcu/urcu-memb.h>

#define GOOD 42
#define MOST_READERS 3	/* more readers than the host has CPUs would only wait for each other */

struct object {
	volatile int value;
};

static struct object pool[2], *current = &pool[0];
static atomic_bool stop;
static atomic_long sections, changes, poisoned;
static atomic_int reading, idle;

static void *reader(void *argument)
{
	struct object *last = NULL;
	long own = 0, seen = 0, bad = 0;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((intptr_t)argument, &set);
	sched_setaffinity(0, sizeof(set), &set);
	urcu_memb_register_thread();
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		struct object *object;
		int i;

		urcu_memb_read_lock();
		object = rcu_dereference(current);
		for (i = 0; i < 20; i++)
			bad += object->value != GOOD;
		urcu_memb_read_unlock();
		seen += last && object != last;
		last = object;
		if (own++ == 0)
			atomic_fetch_add(&reading, 1);
	}
	urcu_memb_unregister_thread();
	atomic_fetch_add(&sections, own);
	atomic_fetch_add(&changes, seen);
	atomic_fetch_add(&idle, seen == 0);
	atomic_fetch_add(&poisoned, bad);
	return NULL;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
	int cpus = count > 1 ? atoi(arguments[1]) : 2, i;
	double seconds = count > 2 ? atof(arguments[2]) : 1.0, end;
	int readers = cpus - 1 < MOST_READERS ? cpus - 1 : MOST_READERS;
	bool early = count > 3;
	pthread_t threads[MOST_READERS];
	long periods = 0;

	pool[0].value = GOOD;
	for (i = 0; i < readers; i++)
		pthread_create(&threads[i], NULL, reader, (void *)(intptr_t)(i + 1));
	while (atomic_load(&reading) < readers)
		sched_yield();
	end = now() + seconds;
	while (now() < end || periods < 10) {
		struct object *old = current, *new = old == &pool[0] ? &pool[1] : &pool[0];

		new->value = GOOD;
		rcu_assign_pointer(current, new);
		if (!early)
			urcu_memb_synchronize_rcu();
		old->value = 0;
		periods++;
	}
	atomic_store(&stop, true);
	for (i = 0; i < readers; i++)
		pthread_join(threads[i], NULL);
	printf("%ld %s; %ld sections of %d readers, which saw %ld changes and %ld reclaimed objects\n", periods,
	       early ? "replacements" : "grace periods", atomic_load(&sections), readers, atomic_load(&changes),
	       atomic_load(&poisoned));
	/* A reader that never saw a change did not run during the grace periods. */
	return atomic_load(&poisoned) || atomic_load(&idle) ? 1 : 0;
}
