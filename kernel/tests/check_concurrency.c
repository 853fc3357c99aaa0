// SPDX-License-Identifier: GPL-2.0-only
/* Many initiators at the same time, and CPUs that go offline and come back. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "check.h"

#define MOST_CPUS 256

static atomic_bool stop;
static atomic_long operations, wrong;

static void *initiator(void *argument)
{
	int cpu = (int)(intptr_t)argument, i = cpu;

	if (cpu >= 0)
		pin(cpu);
	do {
		struct still_mb_request request;
		__u32 all = disturb && i % 2 ? STILL_MB_ALL : 0;
		int error = barrier(&ways[(unsigned int)i % (unsigned int)way_count], STILL_MB_COUNT | all, &request);

		if (error || request.sends + request.refused != request.receivers)
			atomic_fetch_add(&wrong, 1);
		atomic_fetch_add(&operations, 1);
		i++;
	} while (!atomic_load(&stop));
	return NULL;
}

/* An initiator: it does one operation at least. */
static void start(pthread_t *thread, int cpu)
{
	int error = pthread_create(thread, NULL, initiator, (void *)(intptr_t)cpu);

	if (error) {
		failed("an initiator", "no thread: %s", strerror(error));
		exit(1);
	}
}

static void sleep_for(double seconds)
{
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);

	while (now_ns() < end)
		sched_yield();
}

void check_concurrency(double seconds)
{
	pthread_t threads[MOST_CPUS];
	int cpus = online_cpus(), i;
	struct still_mb_info before, after;

	if (cpus > MOST_CPUS)
		cpus = MOST_CPUS;
	ioctl(device, STILL_MB_IOC_INFO, &before);
	atomic_store(&stop, false);
	atomic_store(&operations, 0);
	for (i = 0; i < cpus; i++)
		start(&threads[i], i);
	sleep_for(2 * seconds);
	atomic_store(&stop, true);
	for (i = 0; i < cpus; i++)
		pthread_join(threads[i], NULL);
	ioctl(device, STILL_MB_IOC_INFO, &after);
	if (atomic_load(&wrong) ||
	    miscounted(after.operations - before.operations, (__u64)atomic_load(&operations)))
		failed("concurrent initiators", "%ld of %ld operations were wrong; the module counted %llu",
		       atomic_load(&wrong), atomic_load(&operations), after.operations - before.operations);
	else
		passed("concurrent initiators", "%ld operations by %d initiators", atomic_load(&operations), cpus);
}

void check_hotplug(double seconds)
{
	int cpus = online_cpus(), last = cpus - 1, toggles = 0, error = 0, cpu = last;
	uint64_t end = now_ns() + (uint64_t)(3 * seconds * 1e9);
	pthread_t threads[2];

	if (cpus < 3) {
		skipped("hotplug", "it needs three CPUs");
		return;
	}
	atomic_store(&stop, false);
	atomic_store(&operations, 0);
	/* One initiator is pinned to a CPU that stays online; the other may run on any CPU. */
	start(&threads[0], 1);
	start(&threads[1], -1);
	while (!error && (now_ns() < end || toggles < 4 || atomic_load(&operations) == 0)) {
		cpu = toggles / 2 % 2 ? last - 1 : last;
		if (cpu < 2)
			cpu = last;
		error = set_online(cpu, toggles % 2);
		toggles++;
	}
	if (toggles % 2)
		error |= set_online(cpu, true);
	atomic_store(&stop, true);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	if (error || atomic_load(&wrong) || online_cpus() != cpus)
		failed("hotplug", "%s; %ld of %ld operations were wrong; %d of %d CPUs are online", strerror(error),
		       atomic_load(&wrong), atomic_load(&operations), online_cpus(), cpus);
	else
		passed("hotplug", "%d changes during %ld operations", toggles, atomic_load(&operations));
}
