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
	/* With an invalid setting, the program runs on the system call. */
	ioctl(device, STILL_MB_IOC_INFO, &before);
	i = (unsigned int)with_preload("STILLPOINT_MEMBARRIER=split:100", cpus, time, NULL, text, sizeof(text));
	ioctl(device, STILL_MB_IOC_INFO, &after);
	if (i != 0 || after.operations != before.operations)
		failed("liburcu", "a bad setting: exit code %d", (int)i);
	else
		passed("liburcu", "with a bad setting, the program uses the system call");
}
