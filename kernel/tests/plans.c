// SPDX-License-Identifier: GPL-2.0-only
/*
 * Prints the shares of plan.h, one line for each range: strategy, percent, threshold, receivers, resolved strategy, share. With a number
 * of CPUs as its argument, it prints the initiators' orders instead, one line for each CPU.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../plan.h"

#define MOST_RECEIVERS 1024

static void print(__u32 strategy, __u32 percent, __u32 threshold)
{
	__u32 receivers;

	for (receivers = 1; receivers <= MOST_RECEIVERS; receivers++) {
		__u32 resolved = still_mb_resolve(strategy, percent, threshold, receivers);

		printf("%u %u %u %u %u %u\n", strategy, percent, threshold, receivers, resolved,
		       still_mb_share(resolved, percent, receivers));
	}
}

static int print_orders(__u32 cpus)
{
	__u32 own, i;

	for (own = 0; own < cpus; own++)
		for (i = 0; i < cpus; i++)
			printf("%u%c", still_mb_rotated(own, i, cpus), i + 1 < cpus ? ' ' : '\n');
	return 0;
}

int main(int count, char **arguments)
{
	__u32 percent, threshold;

	if (count > 1)
		return print_orders((__u32)atoi(arguments[1]));

	print(STILL_MB_FLAT, 0, 0);
	print(STILL_MB_TREE, 0, 0);
	for (percent = 1; percent < 100; percent++)
		print(STILL_MB_SPLIT, percent, 0);
	for (threshold = 0; threshold < 64; threshold += 9)
		print(STILL_MB_HYBRID, 0, threshold);
	return 0;
}
