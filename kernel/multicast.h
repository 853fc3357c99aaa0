/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STILL_MB_MULTICAST_H
#define STILL_MB_MULTICAST_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/cpumask.h>
#include <linux/smp.h>

#include "plan.h"

struct still_mb_context;

/*
 * A message. It belongs to its receiver from the send to the acknowledgement; before and after, it belongs to the context.
 */
struct still_mb_node {
	call_single_data_t csd;
	struct still_mb_context *context;
	struct still_mb_node *parent;
	u32 begin, end;		/* the receivers that this receiver serves */
	u32 depth, path, sends;	/* for STILL_MB_COUNT */
	/* 1 for the node's own barrier, and 1 for each child that has not acknowledged */
	atomic_t pending ____cacheline_aligned_in_smp;
} ____cacheline_aligned_in_smp;

/*
 * The memory of an initiator. Each CPU has one context, which belongs to the code that runs there with preemption off. It is allocated
 * when the module is loaded, so that a barrier cannot fail for lack of memory.
 */
struct still_mb_context {
	u32 strategy, percent;	/* resolved: never HYBRID */
	bool shared_counter;
	u64 begin, end;		/* the pages to flush: none if both are the same */
	u32 receivers;
	u32 *cpu;		/* the CPU of each receiver, in the order of the ranges */
	struct still_mb_node *node;	/* node[i] is the message to cpu[i] */
	cpumask_var_t mask;	/* the receivers, for smp_call_function_many() */
	cpumask_var_t refused;	/* receivers to which no message could be sent */
	atomic_t refusals;
	u64 operations, refused_ever, interrupts, counted, depths;	/* sums over all operations */
	struct still_mb_node root;
	atomic_t unacknowledged ____cacheline_aligned_in_smp;
};

int still_mb_contexts_init(void);
void still_mb_contexts_exit(void);
/* Fills in the sums over all CPUs. */
void still_mb_totals(struct still_mb_info *info);

/*
 * Executes a barrier on every receiver, behind a flush of the pages in [from, to) if there are any, and fills in the results. The
 * caller has checked the request.
 */
void still_mb_barrier(struct still_mb_request *request, u64 from, u64 to);

bool still_mb_can_flush(void);
/* Makes CPUs that are not receivers flush before they next run the process. */
void still_mb_outdate(void);
/* Flushes the operation's pages on this CPU. The caller has switched preemption off. */
void still_mb_flush_here(const struct still_mb_context *context);

int still_mb_order_init(void);
void still_mb_order_exit(void);
/* Fills in the receivers of the calling CPU's operation. The caller has switched preemption off. */
void still_mb_gather(struct still_mb_context *context, u32 flags);
bool still_mb_can_skip_lazy(void);

#endif
