// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests the order that the barrier promises, by a lock with two flags. The lock relies on the order of a store and a later load. The fast
 * side has only a compiler barrier between its store to `fast` and its load of `slow`. The slow side has the operation under test between
 * its store to `slow` and its load of `fast`. If both sides are inside, the slow side sees `inside` change.
 *
 * With a fence only on the slow side, both sides get inside from time to time. If that does not happen, the test shows nothing, and its
 * result says so.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define FENCE_ALONE (-1)
#define ENOUGH 20	/* violations */
#define EXPECTED 10	/* violations that the entries must make likely if the module did nothing */
#define FEWER_WITH_ALL 50	/* a barrier on all CPUs takes at least this many times as long */
#define FEWER_WITH_SWITCHES 10	/* a fast side that moves or sleeps runs less */
#define OUTSIDE 12	/* turns of the fast side between two entries, so that the slow side gets in, too */
#define TURNS 64	/* of the fast side between two moves, or two sleeps */

static struct {
	_Alignas(128) atomic_int fast;
	_Alignas(128) atomic_int slow;
	_Alignas(128) atomic_uint inside;
} flags;
static atomic_bool stop, running;

#define load(variable) atomic_load_explicit(&(variable), memory_order_relaxed)
#define store(variable, value) atomic_store_explicit(&(variable), value, memory_order_relaxed)
#define compiler_barrier() __asm__ volatile("" ::: "memory")

/*
 * What else the fast side does. While it leaves or reaches a CPU, the module may send no interrupt there, and relies on the barriers of
 * the scheduler (receivers.c).
 */
enum manner { STAYS, MOVES, SLEEPS };

struct fast {
	int cpu;
	enum manner manner;
};

static void *fast_side(void *argument)
{
	const struct fast *fast = argument;
	int cpus = online_cpus(), cpu = fast->cpu;
	unsigned int turn;

	pin(cpu);
	store(running, true);
	for (turn = 1; !load(stop); turn++) {
		int i;

		store(flags.fast, 1);
		compiler_barrier();	/* and no fence */
		if (!load(flags.slow))
			store(flags.inside, load(flags.inside) + 1);
		compiler_barrier();
		store(flags.fast, 0);
		for (i = 0; i < OUTSIDE; i++)
			compiler_barrier();
		if (turn % TURNS == 0 && fast->manner == MOVES) {
			/* Any CPU except that of the slow side. */
			cpu = cpu + 1 < cpus ? cpu + 1 : 1;
			pin(cpu);
		} else if (turn % TURNS == 0 && fast->manner == SLEEPS)
			usleep(1);
	}
	return NULL;
}

struct result {
	long rounds, entries, violations;
	int error;
};

/*
 * Runs the slow side until it has enough entries or violations, or the time is over. An entry counts only if the fast side was inside
 * since the previous entry: while the fast side only sleeps, there can be no violation.
 */
static struct result slow_side(int way, struct fast fast, __u32 more_flags, double seconds, long entries)
{
	struct result result = { 0 };
	struct still_mb_request request;
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
	unsigned int last = load(flags.inside);
	pthread_t thread;

	store(stop, false);
	store(running, false);
	pthread_create(&thread, NULL, fast_side, &fast);
	while (!load(running))
		usleep(1000);
	while (result.entries < entries && result.violations < ENOUGH && now_ns() < end && !result.error) {
		int i;

		result.rounds++;
		store(flags.slow, 1);
		compiler_barrier();
		if (way == FENCE_ALONE)
			atomic_thread_fence(memory_order_seq_cst);
		else
			result.error = barrier(&ways[way], more_flags, &request);
		compiler_barrier();
		if (!load(flags.fast)) {
			unsigned int before = load(flags.inside);

			result.entries += before != last;
			last = before;
			for (i = 0; i < 200; i++)
				compiler_barrier();
			if (before != load(flags.inside))
				result.violations++;
		}
		compiler_barrier();
		store(flags.slow, 0);
		for (i = 0; i < (int)(result.rounds & 255); i++)
			compiler_barrier();
	}
	store(stop, true);
	pthread_join(thread, NULL);
	return result;
}

static void add(struct result *sum, struct result more)
{
	sum->rounds += more.rounds;
	sum->entries += more.entries;
	sum->violations += more.violations;
	sum->error |= more.error;
}

/*
 * Tests one way. While the process runs on two CPUs, there is one receiver. With STILL_MB_ALL all CPUs are receivers, and the fast side
 * runs on each in turn (as a child of the root, an inner node, a leaf) until there are enough entries. Returns whether there were enough
 * entries with one receiver.
 */
static bool one_way(int way, double seconds, long entries, long needed)
{
	const char *name = ways[way].name;
	long wanted = disturb ? entries / FEWER_WITH_ALL + 1 : 0;
	long switches = entries / FEWER_WITH_SWITCHES + 1;
	int cpus = online_cpus(), cpu, empty = 0;
	uint64_t end;
	struct fast middle = { cpus / 2, STAYS };
	struct result few, moved = { 0 }, slept, all = { 0 };
	char reason[384], switched[96];

	few = slow_side(way, middle, 0, 20 * seconds, entries);
	if (cpus > 2)
		moved = slow_side(way, (struct fast) { 1, MOVES }, 0, 5 * seconds, switches);
	slept = slow_side(way, (struct fast) { cpus / 2, SLEEPS }, 0, 5 * seconds, switches);
	snprintf(switched, sizeof(switched), "%ld beside a fast side that moves, %ld beside one that sleeps",
		 moved.entries, slept.entries);
	end = now_ns() + (uint64_t)(5 * seconds * 1e9);
	for (cpu = 1; wanted && cpu < cpus; cpu++) {
		double share = ((double)end - (double)now_ns()) / 1e9 / (cpus - cpu);
		struct result here = slow_side(way, (struct fast) { cpu, STAYS }, STILL_MB_ALL, share > 0 ? share : 0,
						 wanted / (cpus - 1) + 1);

		empty += here.entries == 0;
		add(&all, here);
	}
	if (few.error || all.error || moved.error || slept.error)
		failed("litmus", "%s: %s", name,
		       strerror(few.error ? few.error : all.error ? all.error : moved.error | slept.error));
	else if (few.violations || all.violations || moved.violations || slept.violations)
		failed("litmus", "%s: %ld violations in %ld entries, %ld in %ld with all CPUs as receivers; %ld and %ld in "
		       "%s", name, few.violations, few.entries, all.violations, all.entries, moved.violations,
		       slept.violations, switched);
	else if (few.entries < entries || all.entries < wanted || empty || (cpus > 2 && moved.entries < switches) ||
		 slept.entries < switches) {
		/* A machine that is too slow is no evidence against the module. */
		snprintf(reason, sizeof(reason), "%s: 0 violations when the time was over, in %ld entries of %ld, and in "
			 "%ld of %ld with all CPUs as receivers (none with the fast side on %d of them), %s, of %ld each",
			 name, few.entries, entries, all.entries, wanted, empty, switched, switches);
		skipped("litmus", reason);
	} else if (few.entries < needed) {
		snprintf(reason, sizeof(reason), "%s: 0 violations in %ld entries, and in %ld with all CPUs as receivers, "
			 "which is too few compared with the control", name, few.entries, all.entries);
		skipped("litmus", reason);
	} else
		passed("litmus", "%s: 0 violations in %ld entries, in %ld with all CPUs as receivers, and in %s", name,
		       few.entries, all.entries, switched);
	return few.entries >= entries && !few.error && !few.violations;
}

/*
 * The control: counts how often a fence on only one side fails. Returns the number of entries in which a module without a barrier would
 * be expected to have ten violations. There can be a violation only while both virtual CPUs run at the same time on the host, which is
 * rare on a busy host.
 */
static long check_control(double seconds, long entries)
{
	struct result control = slow_side(FENCE_ALONE, (struct fast) { online_cpus() / 2, STAYS }, 0, 50 * seconds, LONG_MAX);
	long needed;
	char reason[256];

	if (control.violations == 0) {
		snprintf(reason, sizeof(reason), "no violation in %ld entries with a fence on one side only: at this "
			 "time, on this machine, the litmus test shows nothing", control.entries);
		skipped("litmus control", reason);
		return LONG_MAX;
	}
	needed = EXPECTED * control.entries / control.violations;
	if (needed > entries) {
		snprintf(reason, sizeof(reason), "%ld violations in %ld entries with a fence on one side only: the "
			 "litmus test needs %ld entries, and has %ld", control.violations, control.entries, needed, entries);
		skipped("litmus control", reason);
	} else
		passed("litmus control", "%ld violations in %ld entries with a fence on one side only",
		       control.violations, control.entries);
	return needed;
}

void check_litmus(double seconds, long entries)
{
	int way, whole = 0;
	long needed;

	if (online_cpus() < 2) {
		skipped("litmus", "it needs two CPUs");
		return;
	}
	needed = check_control(seconds, entries);
	for (way = 0; way < way_count; way++)
		whole += one_way(way, seconds, entries, needed);
	if (!whole)
		failed("litmus", "no strategy reached its number of entries: nothing was shown; give more --seconds, or "
		       "fewer --entries");
	else
		passed("litmus entries", "%d of %d strategies reached %ld entries with one receiver", whole,
		       way_count, entries);
}
