// SPDX-License-Identifier: GPL-2.0-only
/* Tests an ordinary program that uses liburcu, and reaches the module only through the interposer. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "check.h"

#define PROGRAM "/urcu"
#define PRELOAD "LD_PRELOAD=/libstillpoint_membarrier.so"

/* Runs the program on the module. Returns its exit code, or -1. `text` gets its output in one line. */
static int with_preload(char *strategy, char *cpus, char *seconds, char *early, char *text, size_t size)
{
	char *const arguments[] = { PROGRAM, cpus, seconds, early, NULL };
	char *const environment[] = { PRELOAD, strategy, NULL };
	int code = run(PROGRAM, arguments, environment, text, size);

	flatten(text);
	return code;
}

/* The control: if the writer waits for no grace periods, readers must notice. */
static void check_control(char *cpus, char *seconds)
{
	char text[512];

	if (with_preload("STILLPOINT_MEMBARRIER=tree", cpus, seconds, "early", text, sizeof(text)) == 1 &&
	    strstr(text, " reclaimed objects"))
		passed("liburcu control", "without grace periods it fails: %s", text);
	else
		skipped("liburcu control", "a writer that waits for no grace period went unnoticed");
}

/* The readers' rate, beside a writer of several frequencies. */
static void check_rates(char *strategy, char *cpus, char *seconds)
{
	const char *name = strchr(strategy, '=') + 1;
	char text[1024], *line, *rest = text;
	struct still_mb_info before, after;
	long waited, periods, sections, all = 0;
	int code, asked, rows = 0, idle = 0;
	double time;

	ioctl(device, STILL_MB_IOC_INFO, &before);
	code = with_preload(strategy, cpus, seconds, "rates", text, sizeof(text));
	ioctl(device, STILL_MB_IOC_INFO, &after);
	while ((line = strsep(&rest, "/")) &&
	       sscanf(line, "%d %ld %ld %lf", &asked, &periods, &sections, &time) == 4) {
		rate("%s %d %ld %ld %.3f", name, asked, periods, sections, time);
		all += periods;
		rows++;
		idle += sections == 0 || (periods > 0) != (asked > 0);
	}
	if (code != 0 || !line || sscanf(line, "%ld grace periods", &waited) != 1 || rows < 2 || idle)
		failed("liburcu by frequency", "%s: exit code %d, %d rows, %d of them idle: %s", name, code, rows, idle,
		       line ? line : text);
	else if (waited != all || after.operations - before.operations < (__u64)all)
		failed("liburcu by frequency", "%s: %ld grace periods of %ld, %s", name, all, waited,
		       counted(&before, &after));
	else
		passed("liburcu by frequency", "%s: %d rows; %s; %s", name, rows, line, counted(&before, &after));
}

void check_liburcu(double seconds)
{
	static char *const strategies[] = {
		"STILLPOINT_MEMBARRIER=smp-call", "STILLPOINT_MEMBARRIER=flat", "STILLPOINT_MEMBARRIER=tree",
		"STILLPOINT_MEMBARRIER=split:30", "STILLPOINT_MEMBARRIER=hybrid:4",
	};
	char cpus[16], time[16], text[512];
	struct still_mb_info before, after;
	unsigned int i;

	if (access(PROGRAM, X_OK) != 0) {
		skipped("liburcu", "the program that uses it was not built (liburcu-dev)");
		return;
	}
	snprintf(cpus, sizeof(cpus), "%d", online_cpus());
	snprintf(time, sizeof(time), "%g", seconds / 3);
	check_control(cpus, time);
	snprintf(time, sizeof(time), "%g", seconds);
	for (i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
		const char *name = strchr(strategies[i], '=') + 1;
		__u64 operations;
		long periods = 0;
		int code;

		ioctl(device, STILL_MB_IOC_INFO, &before);
		code = with_preload(strategies[i], cpus, time, NULL, text, sizeof(text));
		ioctl(device, STILL_MB_IOC_INFO, &after);
		operations = after.operations - before.operations;
		if (code != 0 || sscanf(text, "%ld grace periods", &periods) != 1)
			failed("liburcu", "%s: exit code %d: %s", name, code, text);
		else if (operations < (__u64)periods)
			failed("liburcu", "%s: %llu barriers by the module, of %ld grace periods", name, operations, periods);
		else
			passed("liburcu", "%s: %s; %s", name, text, counted(&before, &after));
	}
	snprintf(time, sizeof(time), "%g", seconds / 2);
	check_rates(strategies[1], cpus, time);
	check_rates(strategies[2], cpus, time);
	/* With an invalid setting, the program runs on the system call. */
	ioctl(device, STILL_MB_IOC_INFO, &before);
	i = (unsigned int)with_preload("STILLPOINT_MEMBARRIER=split:100", cpus, time, NULL, text, sizeof(text));
	ioctl(device, STILL_MB_IOC_INFO, &after);
	if (i != 0 || after.operations != before.operations)
		failed("liburcu", "a bad setting: exit code %d", (int)i);
	else
		passed("liburcu", "with a bad setting, the program uses the system call");
}
