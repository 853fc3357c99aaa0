// SPDX-License-Identifier: GPL-2.0-only
/* An ordinary program that uses liburcu, on the module: by the interposer alone. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PROGRAM "/urcu"
#define PRELOAD "LD_PRELOAD=/libstillpoint_membarrier.so"

/* Runs the program; its exit code, or -1. */
static int run(char *strategy, char *cpus, char *seconds)
{
	char *const arguments[] = { PROGRAM, cpus, seconds, NULL };
	char *const environment[] = { PRELOAD, strategy, NULL };
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		execve(PROGRAM, arguments, environment);
		_exit(127);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void check_liburcu(double seconds)
{
	static char *const strategies[] = {
		"STILLPOINT_MEMBARRIER=smp-call", "STILLPOINT_MEMBARRIER=flat", "STILLPOINT_MEMBARRIER=tree",
		"STILLPOINT_MEMBARRIER=split:30", "STILLPOINT_MEMBARRIER=hybrid:4",
	};
	char cpus[16], time[16];
	struct still_mb_info before, after;
	unsigned int i;

	if (access(PROGRAM, X_OK) != 0) {
		skipped("liburcu", "the program that uses it was not built (liburcu-dev)");
		return;
	}
	snprintf(cpus, sizeof(cpus), "%d", online_cpus());
	snprintf(time, sizeof(time), "%g", seconds);
	for (i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
		const char *name = strchr(strategies[i], '=') + 1;
		int code;

		ioctl(device, STILL_MB_IOC_INFO, &before);
		code = run(strategies[i], cpus, time);
		ioctl(device, STILL_MB_IOC_INFO, &after);
		if (code != 0)
			failed("liburcu", "%s: exit code %d", name, code);
		else if (after.operations == before.operations)
			failed("liburcu", "%s: the program never came to the module", name);
		else
			passed("liburcu", "%s: %llu barriers by the module", name,
			       after.operations - before.operations);
	}
	/* With nonsense it runs, and on the system call. */
	ioctl(device, STILL_MB_IOC_INFO, &before);
	i = (unsigned int)run("STILLPOINT_MEMBARRIER=split:100", cpus, time);
	ioctl(device, STILL_MB_IOC_INFO, &after);
	if (i != 0 || after.operations != before.operations)
		failed("liburcu", "a bad setting: exit code %d", (int)i);
	else
		passed("liburcu", "a bad setting leaves the system call in its place");
}
