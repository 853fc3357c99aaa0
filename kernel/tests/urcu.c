// SPDX-License-Identifier: GPL-2.0-only
/*
 * An ordinary program that uses liburcu, and not the module. A writer replaces an object, waits for a grace period, and poisons the old
 * object. No reader may see the poison. The program prints what the writer and the readers did.
 *
 *	urcu CPUS SECONDS [early | rates]
 *
 *	early: the writer waits for no grace period, and readers should see the poison
 *	rates: the writer replaces at several frequencies, each for SECONDS in every round. A line for each: the frequency that was asked
 *	for, grace periods, the readers' sections meanwhile, and seconds
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <urcu/urcu-memb.h>

#define GOOD 42
#define MOST_READERS 3	/* more readers than the host has CPUs would only wait for each other */

struct object {
	volatile int value;
};

static struct object pool[2], *current = &pool[0];
static atomic_bool stop;
static atomic_long changes, poisoned;
/* The sections of each reader so far, on cache lines of their own. */
static struct { atomic_long sections; } __attribute__((aligned(128))) progress[MOST_READERS];
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
		atomic_store_explicit(&progress[(intptr_t)argument - 1].sections, own, memory_order_relaxed);
	}
	urcu_memb_unregister_thread();
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

static long sections(int readers)
{
	long sum = 0;

	while (readers-- > 0)
		sum += atomic_load_explicit(&progress[readers].sections, memory_order_relaxed);
	return sum;
}

static void sleep_until(double when)
{
	struct timespec time = { .tv_sec = (time_t)when, .tv_nsec = (long)((when - (double)(time_t)when) * 1e9) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void replace(bool early)
{
	struct object *old = current, *new = old == &pool[0] ? &pool[1] : &pool[0];

	new->value = GOOD;
	rcu_assign_pointer(current, new);
	if (!early)
		urcu_memb_synchronize_rcu();
	old->value = 0;
}

/* Measures the readers beside each frequency in turn, and prints the sums of all rounds. Returns the number of grace periods. */
static long rates(double seconds, int readers)
{
	static const int asked[] = { 0, 2, 5, 10, 100, 0 };
	enum { FREQUENCIES = sizeof(asked) / sizeof(asked[0]), ROUNDS = 3 };
	struct { long periods, sections; double seconds; } sum[FREQUENCIES] = { 0 };
	long all = 0;
	int i;

	for (i = 0; i < ROUNDS * FREQUENCIES; i++) {
		/* Each round begins with another frequency. */
		int at = (i + i / FREQUENCIES) % FREQUENCIES;
		double begin = now(), next = begin, end = begin + seconds;
		long before = sections(readers);

		while (asked[at] && now() < end) {
			replace(false);
			sum[at].periods++;
			/* A writer that is late does not catch up. */
			next += 1.0 / asked[at];
			next = next > now() ? next : now();
			sleep_until(next < end ? next : end);
		}
		sleep_until(end);
		sum[at].sections += sections(readers) - before;
		sum[at].seconds += now() - begin;
	}
	for (i = 0; i < FREQUENCIES; all += sum[i++].periods)
		printf("%d %ld %ld %.3f\n", asked[i], sum[i].periods, sum[i].sections, sum[i].seconds);
	return all;
}

int main(int count, char **arguments)
{
	int cpus = count > 1 ? atoi(arguments[1]) : 2, i;
	double seconds = count > 2 ? atof(arguments[2]) : 1.0, end;
	int readers = cpus - 1 < MOST_READERS ? cpus - 1 : MOST_READERS;
	bool early = count > 3 && strcmp(arguments[3], "early") == 0;
	pthread_t threads[MOST_READERS];
	long periods = 0;

	pool[0].value = GOOD;
	for (i = 0; i < readers; i++)
		pthread_create(&threads[i], NULL, reader, (void *)(intptr_t)(i + 1));
	while (atomic_load(&reading) < readers)
		sched_yield();
	end = now() + seconds;
	if (count > 3 && !early)
		periods = rates(seconds, readers);
	else
		for (; now() < end || periods < 10; periods++)
			replace(early);
	atomic_store(&stop, true);
	for (i = 0; i < readers; i++)
		pthread_join(threads[i], NULL);
	printf("%ld %s; %ld sections of %d readers, which saw %ld changes and %ld reclaimed objects\n", periods,
	       early ? "replacements" : "grace periods", sections(readers), readers, atomic_load(&changes),
	       atomic_load(&poisoned));
	/* A reader that never saw a change did not run during the grace periods. */
	return atomic_load(&poisoned) || atomic_load(&idle) ? 1 : 0;
}
