/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a range of receivers is split. The module and its test program use this file. The library and the simulator have
 * the same rule in Rust, and a test compares the two.
 *
 * A sender with `r` receivers left delegates a share of `g` receivers, 1 <= g <= r, to one of the g, which serves the other g - 1. The
 * sender continues with r - g. So, where each function is 0 for r = 0:
 *
 *	root_sends(r)   = 1 + root_sends(r - g)
 *	depth(r)        = max(1 + depth(g - 1), depth(r - g))
 *	longest_path(r) = 1 + max(longest_path(g - 1), longest_path(r - g))
 */
#ifndef STILL_MB_PLAN_H
#define STILL_MB_PLAN_H

#include "include/stillpoint_membarrier.h"

/* The strategy that HYBRID becomes for this number of receivers. Returns other strategies unchanged. */
static inline __u32 still_mb_resolve(__u32 strategy, __u32 percent,
				     __u32 threshold, __u32 receivers)
{
	if (strategy != STILL_MB_HYBRID)
		return strategy;
	if (receivers <= threshold)
		return STILL_MB_SMP_CALL;
	return percent ? STILL_MB_SPLIT : STILL_MB_TREE;
}

/* The share of `rest` receivers, at least 1, that one message delegates. Includes the receiver of the message. */
static inline __u32 still_mb_share(__u32 strategy, __u32 percent, __u32 rest)
{
	__u32 share;

	switch (strategy) {
	case STILL_MB_TREE:
		return rest - rest / 2;
	case STILL_MB_SPLIT:
		/* percent is below 100, so the share is below rest */
		share = (__u32)((__u64)rest * percent / 100);
		return share ? share : 1;
	default:
		return 1;
	}
}

/*
 * The place of the i-th CPU in an initiator's order. There is a common order of `count` CPUs, in which neighbours are side by side. The
 * initiator's own place in the common order is `own`. Its order begins with the next place, and ends with its own CPU. So the trees of
 * different initiators have different inner nodes.
 */
static inline __u32 still_mb_rotated(__u32 own, __u32 i, __u32 count)
{
	__u32 at = own + 1 + i;

	return at < count ? at : at - count;
}

#endif
