// SPDX-License-Identifier: GPL-2.0-only
/* Runs separate programs that use the module, and describes what the module counted meanwhile. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

int run(const char *program, char *const arguments[], char *const environment[], char *text, size_t size)
{
	int ends[2], status = 0;
	size_t length = 0;
	cpu_set_t all;
	ssize_t got;
	pid_t child;

	text[0] = '\0';
	if (pipe(ends) != 0)
		return -1;
	child = fork();
	if (child == 0) {
		/* This process is pinned to one CPU. The program may run on all CPUs. */
		memset(&all, 0xff, sizeof(all));
		sched_setaffinity(0, sizeof(all), &all);
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		close(ends[0]);
		close(ends[1]);
		execve(program, arguments, environment);
		_exit(127);
	}
	close(ends[1]);
	while ((got = read(ends[0], text + length, size - 1 - length)) > 0) {
		length += (size_t)got;
		if (length == size - 1) {
			memmove(text, text + size / 2, length - size / 2);
			length -= size / 2;
		}
	}
	close(ends[0]);
	text[length] = '\0';
	waitpid(child, &status, 0);
	return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void flatten(char *text)
{
	for (; *text; text++)
		if (*text == '\n' || *text == '\r')
			*text = text[1] ? '/' : '\0';
}

const char *counted(const struct still_mb_info *before, const struct still_mb_info *after)
{
	static char text[96];
	__u64 operations = after->operations - before->operations, own = after->counted - before->counted;
	int length = snprintf(text, sizeof(text), "%llu barriers by the module", operations);

	if (operations)
		length += snprintf(text + length, sizeof(text) - (size_t)length, ", of %.2f interrupts",
				   (double)(after->interrupts - before->interrupts) / (double)operations);
	if (own)
		snprintf(text + length, sizeof(text) - (size_t)length, " and a depth of %.2f",
			 (double)(after->depths - before->depths) / (double)own);
	return text;
}
