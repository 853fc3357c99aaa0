// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds the CPUs that have to execute a barrier: those in mm_cpumask(), except lazy ones.
 *
 * The caller's accesses before the operation, and the smp_mb() at its start, come before all reads here. Let P be a CPU
 * that is left out. A thread of the process on P is ordered as if it had executed a barrier:
 *
 * - P's bit is clear. The kernel sets it by an atomic read-modify-write, or finds it set, before P returns to a thread of
 *   the process. If that comes after our read, this thread sees what the caller wrote. P clears the bit after it has left
 *   such a thread, through the full barrier in schedule(). If that comes before our read, we see what this thread wrote.
 *   use_temporary_mm() clears and sets the bit while such a thread runs: by locked instructions, which are full barriers on
 *   this CPU.
 * - P is lazy: it idles, or runs a kernel thread, on the page tables of the process. enter_lazy_tlb() sets the flag after
 *   the full barrier in schedule(). On the way back, switch_mm_irqs_off() clears it, and then executes smp_mb(). This is
 *   the same store-buffering pattern, with a full barrier on both sides.
 * - P is offline: it left its last thread through schedule(), and cannot have gone offline since the operation began (see
 *   still_mb_barrier()). If it comes online, there are many full barriers between its bit in the online mask and its first
 *   thread.
 *
 * The system call reads rq->curr. The scheduler executes a full barrier before and after each change of rq->curr. A module cannot read
 * rq->curr. Neither current_task of each CPU nor on_cpu of the tasks can replace it: they may change after the last full barrier of a
 * switch, and then the change may still be in the store buffer when the next thread already loads.
 */
#include <linux/mm_types.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/topology.h>
#include <linux/version.h>

#include "multicast.h"

static u32 *order;		/* all possible CPUs, neighbours side by side */
static u32 *position;		/* the position of each CPU in `order` */
static u32 ordered;

/*
 * asm/tlbflush.h hides this variable from modules, although its symbol is exported. Our declaration was compared with the headers of
 * the versions below. On other versions, lazy CPUs are interrupted, too.
 */
#define IS_LINUX(major, minor)						\
	(LINUX_VERSION_CODE >= KERNEL_VERSION(major, minor, 0) &&	\
	 LINUX_VERSION_CODE < KERNEL_VERSION(major, (minor) + 1, 0))
#if IS_LINUX(6, 1) || IS_LINUX(6, 12)
struct tlb_state_shared {
	bool is_lazy;
};
DECLARE_PER_CPU_SHARED_ALIGNED(struct tlb_state_shared, cpu_tlbstate_shared);

bool still_mb_can_skip_lazy(void)
{
	return true;
}

static bool is_lazy(u32 cpu)
{
	return READ_ONCE(per_cpu(cpu_tlbstate_shared.is_lazy, cpu));
}
#else
bool still_mb_can_skip_lazy(void)
{
	return false;
}

static bool is_lazy(u32 cpu)
{
	return false;
}
#endif

static bool must_receive(u32 cpu, u32 flags)
{
	if (!cpu_online(cpu))
		return false;
	if (flags & STILL_MB_ALL)
		return true;
	if (!cpumask_test_cpu(cpu, mm_cpumask(current->mm)))
		return false;
	return (flags & STILL_MB_INCLUDE_LAZY) || !is_lazy(cpu);
}

void still_mb_gather(struct still_mb_context *context, u32 flags)
{
	u32 me = smp_processor_id();
	u32 i;

	context->receivers = 0;
	for (i = 0; i < ordered; i++) {
		u32 cpu = order[(flags & STILL_MB_SAME_ORDER) ? i : still_mb_rotated(position[me], i, ordered)];

		if (cpu != me && must_receive(cpu, flags))
			context->cpu[context->receivers++] = cpu;
	}
}

static int by_neighbourhood(const void *left, const void *right)
{
	u32 a = *(const u32 *)left, b = *(const u32 *)right;
	const int key[][2] = {
		{ cpu_to_node(a), cpu_to_node(b) },
		{ topology_physical_package_id(a), topology_physical_package_id(b) },
		{ topology_core_id(a), topology_core_id(b) },
		{ a, b },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(key); i++)
		if (key[i][0] != key[i][1])
			return key[i][0] < key[i][1] ? -1 : 1;
	return 0;
}

int still_mb_order_init(void)
{
	u32 cpu, i;

	order = kvcalloc(nr_cpu_ids, sizeof(*order), GFP_KERNEL);
	position = kvcalloc(nr_cpu_ids, sizeof(*position), GFP_KERNEL);
	if (!order || !position) {
		still_mb_order_exit();
		return -ENOMEM;
	}
	for_each_possible_cpu(cpu)
		order[ordered++] = cpu;
	sort(order, ordered, sizeof(*order), by_neighbourhood, NULL);
	for (i = 0; i < ordered; i++)
		position[order[i]] = i;
	return 0;
}

void still_mb_order_exit(void)
{
	kvfree(order);
	kvfree(position);
	order = position = NULL;
}
