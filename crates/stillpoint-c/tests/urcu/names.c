/* Tests of the names that the flavours had before liburcu 0.11, of several flavours in one file, and of old file names. */
#include <urcu/urcu-memb.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-qsbr.h>
#include <urcu/urcu-bp.h>

#include <urcu-call-rcu.h>
#include <urcu-defer.h>
#include <urcu-flavor.h>
#include <urcu-pointer.h>

#ifdef call_rcu
#error "the names without a flavour are still defined"
#endif

static int called;

static void count(struct rcu_head *head)
{
    (void)head;
    __atomic_add_fetch(&called, 1, __ATOMIC_SEQ_CST);
}

#define EVERYTHING(f)                                                                                      \
    static void everything_##f(void)                                                                       \
    {                                                                                                      \
        static struct rcu_head head;                                                                       \
        rcu_init_##f();                                                                                    \
        rcu_register_thread_##f();                                                                         \
        rcu_read_lock_##f();                                                                               \
        rcu_read_unlock_##f();                                                                             \
        synchronize_rcu_##f();                                                                             \
        call_rcu_##f(&head, count);                                                                        \
        rcu_barrier_##f();                                                                                 \
        rcu_defer_barrier_##f();                                                                           \
        rcu_flavor_##f.read_lock();                                                                        \
        rcu_flavor_##f.read_unlock();                                                                      \
        rcu_unregister_thread_##f();                                                                       \
        rcu_exit_##f();                                                                                    \
    }

EVERYTHING(memb)
EVERYTHING(mb)
EVERYTHING(qsbr)
EVERYTHING(bp)

int main(void)
{
    everything_memb();
    everything_mb();
    everything_qsbr();
    everything_bp();
    /* In bp, a library that registers and unregisters by the table of functions does not end the program's section. */
    rcu_flavor_bp.read_lock();
    rcu_flavor_bp.register_thread();
    rcu_flavor_bp.unregister_thread();
    if (!rcu_flavor_bp.read_ongoing())
        return 2;
    rcu_flavor_bp.read_unlock();
    return __atomic_load_n(&called, __ATOMIC_SEQ_CST) != 4;
}
