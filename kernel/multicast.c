// SPDX-License-Identifier: GPL-2.0-only
/*
 * A multicast along a tree, over the kernel's calls to a single CPU. The tree exists only during an operation.
 *
 * The initiator has a range of receivers. A CPU with a range sends a message to one receiver in it, delegates a share of the
 * rest with the message, and repeats this until its range is empty. Then it executes its barrier. It does not wait for its
 * children: the last of them, or the CPU itself, acknowledges to the parent (software combining).
 *
 * Rules:
 * - A node's `pending` counts the node's own barrier from the start. So a fast child cannot bring it to zero while the node still
 *   sends.
 * - A CPU reads a node's parent before it decrements the node's `pending`, and does not touch the node afterwards: once `pending` is
 *   zero, the initiator may return, and begin its next operation in the same memory.
 * - The kernel unlocks the csd of an asynchronous call before it calls the function. So the csd is free, too, when the receiver
 *   acknowledges.
 *
 * Order: the initiator's earlier accesses come before its smp_mb() at the start. After it come the pushes onto the receivers' queues. A
 * receiver executes its smp_mb() after such a push, and before its acknowledgement. The decrements are full barriers, so the last
 * decrement, for which the initiator waits, comes after the smp_mb() of every receiver. So a receiver's accesses after its smp_mb() see
 * what the initiator wrote before, and the initiator sees what a receiver wrote before its smp_mb().
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "multicast.h"

#define MOST_CPUS 1024u

static struct still_mb_context **contexts;	/* by CPU */

static unsigned int refuse_every;
module_param(refuse_every, uint, 0600);
MODULE_PARM_DESC(refuse_every, "For tests: refuse every n-th message (0: none)");
static atomic_t messages;

static bool count_all;
module_param(count_all, bool, 0600);
MODULE_PARM_DESC(count_all, "For tests: count in every operation, as with STILL_MB_COUNT");

static void receive(void *info);

/*
 * Sends a message. Returns false if a test refuses the message. The call would also fail if the CPU were offline or the node's csd in
 * use; neither can happen.
 */
static bool try_send(u32 cpu, struct still_mb_node *node)
{
	unsigned int every = READ_ONCE(refuse_every);

	if (unlikely(every) && (u32)atomic_inc_return(&messages) % every == 0)
		return false;
	return smp_call_function_single_async(cpu, &node->csd) == 0;
}

/*
 * Uncounts a child to which no message was sent. No test for 0 is needed: the sender's own barrier still counts, except the root's in
 * `unacknowledged`, which the root polls afterwards.
 */
static void forget(struct still_mb_context *context, struct still_mb_node *self)
{
	atomic_dec(context->shared_counter ? &context->unacknowledged : &self->pending);
}

/* Serves the receivers in [begin, end). Runs with preemption off, or in an interrupt. */
static void forward(struct still_mb_node *self, u32 begin, u32 end)
{
	struct still_mb_context *context = self->context;

	self->sends = 0;
	while (begin < end) {
		u32 share = still_mb_share(context->strategy, context->percent, end - begin);
		u32 at = end - share;	/* the far end first, because it may be on another socket */
		struct still_mb_node *child = &context->node[at];

		child->parent = self;
		child->begin = at + 1;
		child->end = end;
		child->depth = self->depth + 1;
		child->path = self->path + self->sends + 1;
		atomic_set(&child->pending, 1);
		if (!context->shared_counter)
			atomic_inc(&self->pending);
		if (likely(try_send(context->cpu[at], child))) {
			self->sends++;
			end = at;
			continue;
		}
		/* Take the child's range back. The first receiver moves to the child's place, so that the range stays contiguous. */
		forget(context, self);
		cpumask_set_cpu(context->cpu[at], context->refused);
		atomic_inc(&context->refusals);
		child->sends = child->depth = child->path = 0;
		context->cpu[at] = context->cpu[begin];
		context->node[begin].sends = context->node[begin].depth = context->node[begin].path = 0;
		begin++;
	}
}

static void acknowledge(struct still_mb_node *node)
{
	while (node) {
		struct still_mb_node *parent = node->parent;

		if (!atomic_dec_and_test(&node->pending))
			return;
		node = parent;
	}
}

static void flush(const struct still_mb_context *context)
{
	if (context->begin < context->end)
		still_mb_flush_here(context);
}

/* Handles a message. Runs on the receiver, in the interrupt. */
static void receive(void *info)
{
	struct still_mb_node *self = info;
	struct still_mb_context *context = self->context;

	forward(self, self->begin, self->end);
	flush(context);
	smp_mb();	/* the barrier; pairs with those of the initiator in still_mb_barrier() */
	if (context->shared_counter)
		atomic_dec_return(&context->unacknowledged);	/* a full barrier, unlike atomic_dec() */
	else
		acknowledge(self);
}

static void without_forwarding(void *context)
{
	flush(context);
	smp_mb();	/* as in receive() */
}

static void multicast(struct still_mb_context *context, struct still_mb_request *request, u64 begin)
{
	struct still_mb_node *root = &context->root;
	atomic_t *left = context->shared_counter ? &context->unacknowledged : &root->pending;
	u32 cpu;

	atomic_set(&context->unacknowledged, context->receivers);
	atomic_set(&root->pending, 1);
	forward(root, 0, context->receivers);
	request->root_sends = root->sends;
	request->send_ns = ktime_get_ns() - begin;
	flush(context);
	acknowledge(root);
	/* Acquire: pairs with the receivers' decrements, which are full barriers. */
	while (atomic_read_acquire(left))
		cpu_relax();
	request->refused = atomic_read(&context->refusals);
	if (likely(!request->refused))
		return;
	context->refused_ever += request->refused;
	/* An offline CPU also refuses this call, but needs no barrier: no thread of the process runs there. */
	for_each_cpu(cpu, context->refused)
		smp_call_function_single(cpu, without_forwarding, context, true);
	cpumask_clear(context->refused);
	atomic_set(&context->refusals, 0);
}

static void smp_call(struct still_mb_context *context, struct still_mb_request *request)
{
	u32 i;

	cpumask_clear(context->mask);
	for (i = 0; i < context->receivers; i++)
		cpumask_set_cpu(context->cpu[i], context->mask);
	flush(context);
	smp_call_function_many(context->mask, without_forwarding, context, true);
	request->root_sends = context->receivers;
}

/* Runs after all acknowledgements, when the nodes belong to the context again. */
static void count(const struct still_mb_context *context, struct still_mb_request *request)
{
	u32 i;

	if (context->strategy == STILL_MB_SMP_CALL) {
		request->sends = request->longest_path = context->receivers;
		request->depth = context->receivers ? 1 : 0;
		return;
	}
	request->sends = context->root.sends;
	for (i = 0; i < context->receivers; i++) {
		const struct still_mb_node *node = &context->node[i];

		request->sends += node->sends;
		request->depth = max(request->depth, node->depth);
		request->longest_path = max(request->longest_path, node->path);
	}
}

void still_mb_barrier(struct still_mb_request *request, u64 from, u64 to)
{
	struct still_mb_context *context;
	u64 begin = ktime_get_ns();

	/*
	 * While preemption is off, no CPU can go offline, since that needs a thread to run on each CPU; and no other code uses the context.
	 */
	preempt_disable();
	context = contexts[smp_processor_id()];
	context->begin = from;
	context->end = to;
	if (from < to)
		still_mb_outdate();
	/* Pairs with the receivers' barriers, and with those of CPUs that are left out (see receivers.c). */
	smp_mb();
	still_mb_gather(context, request->flags);
	request->receivers = context->receivers;
	context->strategy = still_mb_resolve(request->strategy, request->percent, request->threshold,
					     context->receivers);
	context->percent = request->percent;
	/* The only inner node of a flat tree is the root, so combining acknowledgements would only add a second counter. */
	context->shared_counter = (request->flags & STILL_MB_SHARED_COUNTER) ||
				  context->strategy == STILL_MB_FLAT;
	if (context->strategy == STILL_MB_SMP_CALL)
		smp_call(context, request);
	else
		multicast(context, request, begin);
	smp_mb();	/* pairs with the same barriers, for the caller's later accesses */
	request->total_ns = ktime_get_ns() - begin;
	if ((request->flags & STILL_MB_COUNT) || unlikely(READ_ONCE(count_all))) {
		count(context, request);
		context->counted++;
		context->depths += request->depth;
	}
	context->operations++;
	context->interrupts += request->receivers;
	preempt_enable();
}

void still_mb_totals(struct still_mb_info *info)
{
	u32 cpu;

	info->operations = info->refused = info->interrupts = info->counted = info->depths = 0;
	for_each_possible_cpu(cpu) {
		const struct still_mb_context *context = contexts[cpu];

		info->operations += READ_ONCE(context->operations);
		info->refused += READ_ONCE(context->refused_ever);
		info->interrupts += READ_ONCE(context->interrupts);
		info->counted += READ_ONCE(context->counted);
		info->depths += READ_ONCE(context->depths);
	}
}

static void free_context(struct still_mb_context *context)
{
	if (!context)
		return;
	kvfree(context->node);
	kvfree(context->cpu);
	free_cpumask_var(context->mask);
	free_cpumask_var(context->refused);
	kvfree(context);
}

static struct still_mb_context *new_context(int numa_node)
{
	/* Whole pages, whose alignment is enough for a cache line and a csd. */
	struct still_mb_context *context =
		kvzalloc_node(PAGE_ALIGN(sizeof(*context)), GFP_KERNEL, numa_node);
	u32 i;

	if (!context)
		return NULL;
	context->cpu = kvcalloc(nr_cpu_ids, sizeof(*context->cpu), GFP_KERNEL);
	context->node = kvzalloc_node(PAGE_ALIGN(nr_cpu_ids * sizeof(*context->node)), GFP_KERNEL,
				      numa_node);
	if (!context->cpu || !context->node ||
	    !zalloc_cpumask_var(&context->mask, GFP_KERNEL) ||
	    !zalloc_cpumask_var(&context->refused, GFP_KERNEL)) {
		free_context(context);
		return NULL;
	}
	context->root.context = context;
	for (i = 0; i < nr_cpu_ids; i++) {
		context->node[i].context = context;
		INIT_CSD(&context->node[i].csd, receive, &context->node[i]);
	}
	return context;
}

int still_mb_contexts_init(void)
{
	u32 cpu;

	/* There is a node for each pair of CPUs. Above this limit, the nodes would take gigabytes. */
	if (nr_cpu_ids > MOST_CPUS) {
		pr_err("%u possible CPUs, but at most %u are supported\n", nr_cpu_ids, MOST_CPUS);
		return -E2BIG;
	}
	contexts = kvcalloc(nr_cpu_ids, sizeof(*contexts), GFP_KERNEL);
	if (!contexts)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		contexts[cpu] = new_context(cpu_to_node(cpu));
		if (!contexts[cpu]) {
			still_mb_contexts_exit();
			return -ENOMEM;
		}
	}
	return 0;
}

void still_mb_contexts_exit(void)
{
	u32 cpu;

	for_each_possible_cpu(cpu)
		free_context(contexts[cpu]);
	kvfree(contexts);
	contexts = NULL;
}
