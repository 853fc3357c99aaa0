// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests that a flush reaches the translations of all CPUs. The kernel clears the accessed bits of this process without a flush
 * (clear_refs). A CPU that keeps using an old translation does not set the bit again, and one that was flushed does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096ul
#define MOST_CPUS 64
#define MORE_PAGES 34	/* so many that the module does not flush them one by one */
#define TOUCHES 20
/* Between pages without access: otherwise the kernel could take it together with memory beside it. */
#define OWN(cpu) ((2 * (unsigned long)(cpu) + 1) * PAGE)

static volatile char *pages;	/* every second one may be accessed, and belongs to a CPU */
static atomic_long touched[MOST_CPUS];
static atomic_bool stop;

static void touch(long cpu)
{
	(void)pages[OWN(cpu)];
	atomic_fetch_add(&touched[cpu], 1);
}

static void *toucher(void *cpu)
{
	pin((int)(intptr_t)cpu);
	while (!atomic_load(&stop)) {
		touch((intptr_t)cpu);
		/* Those that sleep are mostly left out: they have to flush when they wake. */
		if ((intptr_t)cpu % 2 == 0)
			usleep(500);
	}
	return NULL;
}

/* Waits until each CPU has touched its page, and returns on how many the accessed bit is clear; -1 if the kernel does not say. */
static int old(int cpus)
{
	unsigned long begin = 0, kib;
	FILE *file;
	char line[256];
	int cpu, found = 0, clear = 0;

	for (cpu = 0; cpu < cpus; cpu++) {
		long goal = atomic_load(&touched[cpu]) + TOUCHES;

		while (atomic_load(&touched[cpu]) < goal)
			cpu ? (void)usleep(100) : touch(0);
	}
	file = fopen("/proc/self/smaps", "re");
	while (file && fgets(line, sizeof(line), file)) {
		unsigned long page;

		if (sscanf(line, "%lx-%*x ", &page) == 1 && strchr(line, '-'))
			begin = page - (unsigned long)pages;
		else if (sscanf(line, "Referenced: %lu", &kib) == 1 && begin % (2 * PAGE) == PAGE &&
			 begin / (2 * PAGE) < (unsigned long)cpus)
			found++, clear += kib == 0;
	}
	if (file)
		fclose(file);
	return found == cpus ? clear : -1;
}

static int flush(const struct way *way, unsigned long length, struct still_mb_flush *request)
{
	*request = (struct still_mb_flush) { .begin = (unsigned long)pages, .length = length };
	request->request = (struct still_mb_request) {
		.version = STILL_MB_VERSION,
		.strategy = way->strategy,
		.flags = way->flags,
		.percent = way->percent,
		.threshold = way->threshold,
	};
	return ioctl(device, STILL_MB_IOC_FLUSH, request) == 0 ? 0 : errno;
}

void check_flush(void)
{
	const struct still_mb_flush good = { { .version = STILL_MB_VERSION, .strategy = STILL_MB_TREE }, PAGE, PAGE };
	struct still_mb_flush bad[] = { good, good, good, good, good }, request;
	int cpus = online_cpus(), cpu, way, every, error, before = 0, kept = 0, met = 0, started, wrong = 0, fd;
	unsigned int fewest = ~0u;
	unsigned long size = (2 * (unsigned long)cpus + MORE_PAGES) * PAGE;
	pthread_t threads[MOST_CPUS];

	pages = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	if (cpus > MOST_CPUS || pages == MAP_FAILED || fd < 0) {
		skipped("flush", "it needs at most 64 CPUs, and clear_refs in /proc");
		return;
	}
	error = flush(&ways[0], size, &request);
	if (error == EOPNOTSUPP) {
		skipped("flush", "the module does not flush on this kernel");
		return;
	}
	bad[0].begin++, bad[1].length++, bad[2].length = 0, bad[3].length = 0 - PAGE, bad[4].request.flags = STILL_MB_ALL;
	for (way = 0; way < 5; way++)
		wrong += ioctl(device, STILL_MB_IOC_FLUSH, &bad[way]) == 0 || errno != EINVAL;
	for (cpu = 0; cpu < cpus; cpu++) {
		mprotect((char *)pages + OWN(cpu), PAGE, PROT_READ | PROT_WRITE);
		pages[OWN(cpu)] = 1;
	}
	for (started = 1; started < cpus; started++)
		if (pthread_create(&threads[started], NULL, toucher, (void *)(intptr_t)started) != 0)
			break;
	if (started < cpus) {
		failed("flush", "cannot start a thread on each CPU");
		wrong++;
	}
	/* Each strategy, while no message is refused, then each, then every second one. */
	for (every = 0; every < 3 * way_count && !wrong && !error; every++) {
		struct still_mb_request only;
		int after;

		way = every % way_count;
		set_parameter("refuse_every", (unsigned int)(every / way_count));
		old(cpus);
		wrong += write(fd, "1", 1) != 1;
		/* The control: interrupts alone flush nothing. */
		error = barrier(&ways[way], 0, &only);
		before = old(cpus);
		error = error ? error : flush(&ways[way], every % 2 ? size : size - MORE_PAGES * PAGE, &request);
		after = old(cpus);
		kept += before;
		met += before > 0;
		fewest = request.request.receivers < fewest ? request.request.receivers : fewest;
		wrong += before < 0 || after != 0 || !request.request.total_ns;
		if (wrong || error)
			failed("flush", "%s: %s; %d of %d CPUs kept old translations, and %d after it", ways[way].name,
			       strerror(error), before, cpus, after);
	}
	set_parameter("refuse_every", 0);
	atomic_store(&stop, true);
	for (cpu = 1; cpu < started; cpu++)
		pthread_join(threads[cpu], NULL);
	close(fd);
	if (wrong || error)
		return;
	/* A flush finds nothing to do if no CPU keeps a translation, and no CPU is left out if none of the sleepers sleeps. */
	if (2 * met <= every || fewest >= (unsigned int)cpus - 1)
		skipped("flush", "too few CPUs kept translations, or none was left out");
	else
		passed("flush", "%d old translations outlived %d of %d barriers, and none the flushes after them, of %u receivers or more",
		       kept, met, every, fewest);
}
