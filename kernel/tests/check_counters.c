// SPDX-License-Identifier: GPL-2.0-only
/* Sends, depth and longest path must match the recurrences, for every number of receivers. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "check.h"

struct shape {
	__u32 root_sends, depth, path;
};

static __u32 larger(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

/* The recurrences of plan.h, written as they are there. */
static struct shape shape(__u32 strategy, __u32 percent, __u32 rest)
{
	struct shape child, own;
	__u32 share;

	if (rest == 0)
		return (struct shape) { 0 };
	share = still_mb_share(strategy, percent, rest);
	child = shape(strategy, percent, share - 1);
	own = shape(strategy, percent, rest - share);
	return (struct shape) {
		.root_sends = 1 + own.root_sends,
		.depth = larger(1 + child.depth, own.depth),
		.path = 1 + larger(child.path, own.path),
	};
}

static struct shape expected(const struct way *way, __u32 receivers)
{
	__u32 strategy = still_mb_resolve(way->strategy, way->percent, way->threshold, receivers);

	/* The kernel's own call has the same counters as the flat strategy. */
	return shape(strategy, way->percent, receivers);
}

/* Checks all ways, and adds their results to the sums. Returns the number of operations, or -1. */
static int with_receivers(__u32 receivers, __u64 *interrupts, __u64 *depths)
{
	int i, operations = 0;
	__u32 order;

	for (i = 0; i < way_count; i++)
		for (order = 0; order <= STILL_MB_SAME_ORDER; order += STILL_MB_SAME_ORDER) {
			struct shape want = expected(&ways[i], receivers);
			struct still_mb_request got;
			int error = barrier(&ways[i], STILL_MB_ALL | STILL_MB_COUNT | order, &got);

			if (error || got.receivers != receivers || got.sends != receivers ||
			    got.root_sends != want.root_sends || got.depth != want.depth ||
			    got.longest_path != want.path || got.refused != 0) {
				failed("counters", "%s, %u receivers: %s; receivers %u, sends %u, root %u "
				       "(not %u), depth %u (not %u), path %u (not %u), refused %u",
				       ways[i].name, receivers, strerror(error), got.receivers, got.sends,
				       got.root_sends, want.root_sends, got.depth, want.depth,
				       got.longest_path, want.path, got.refused);
				return -1;
			}
			operations++;
			*interrupts += got.receivers;
			*depths += got.depth;
		}
	return operations;
}

void check_counters(bool hotplug)
{
	int cpus = online_cpus(), here = -1, off, operations = 0, checked = 0, error = 0;
	struct still_mb_info before, after;
	__u64 interrupts = 0, depths = 0;
	bool down = false;

	ioctl(device, STILL_MB_IOC_INFO, &before);
	/* One CPU after the other goes offline, to check every number of receivers. */
	for (off = cpus - 1; off >= 0; off--) {
		here = with_receivers((__u32)off, &interrupts, &depths);
		if (here < 0)
			break;
		operations += here;
		checked++;
		if (off == 0 || !hotplug)
			break;
		error = set_online(off, false);
		if (error)
			break;
		down = true;
	}
	for (; down && off < cpus; off++)
		if (off > 0)
			set_online(off, true);
	ioctl(device, STILL_MB_IOC_INFO, &after);
	if (error || online_cpus() != cpus)
		failed("counters", "%s; %d of %d CPUs are online", strerror(error), online_cpus(), cpus);
	else if (here >= 0 && (miscounted(after.operations - before.operations, (__u64)operations) ||
			       miscounted(after.interrupts - before.interrupts, interrupts) ||
			       miscounted(after.counted - before.counted, (__u64)operations) ||
			       miscounted(after.depths - before.depths, depths)))
		failed("counters", "the module's sums of %d operations are wrong: %llu interrupts (not %llu), %llu counted, "
		       "depths %llu (not %llu)", operations, after.interrupts - before.interrupts, interrupts,
		       after.counted - before.counted, after.depths - before.depths, depths);
	else if (here >= 0)
		passed("counters", "%d operations to %d numbers of receivers up to %d, and sums of %llu interrupts and %llu "
		       "levels", operations, checked, cpus - 1, interrupts, depths);
}

void check_refusals(void)
{
	int i, wrong = 0, refusals = 0;
	unsigned int every;
	struct still_mb_request got;
	struct still_mb_info before, after;

	ioctl(device, STILL_MB_IOC_INFO, &before);
	for (every = 1; every <= 5; every++) {
		set_parameter("refuse_every", every);
		for (i = 0; i < way_count; i++) {
			int error = barrier(&ways[i], STILL_MB_ALL | STILL_MB_COUNT, &got);
			bool may_refuse = still_mb_resolve(ways[i].strategy, ways[i].percent, ways[i].threshold,
							   got.receivers) != STILL_MB_SMP_CALL;

			if (error || got.sends + got.refused != got.receivers ||
			    got.receivers + 1 != (__u32)online_cpus() ||
			    (every == 1 && may_refuse && got.refused != got.receivers)) {
				failed("refused messages", "%s, refuse_every %u: %s; sends %u, refused %u of %u",
				       ways[i].name, every, strerror(error), got.sends, got.refused,
				       got.receivers);
				wrong++;
			}
			refusals += (int)got.refused;
		}
	}
	set_parameter("refuse_every", 0);
	ioctl(device, STILL_MB_IOC_INFO, &after);
	if (miscounted(after.refused - before.refused, (__u64)refusals) ||
	    miscounted(after.operations - before.operations, (__u64)(5 * way_count)))
		failed("refused messages", "the module counted %llu refused messages, and the tests %d",
		       after.refused - before.refused, refusals);
	else if (!wrong)
		passed("refused messages", "%d were refused, and the module counted the same number", refusals);
}
