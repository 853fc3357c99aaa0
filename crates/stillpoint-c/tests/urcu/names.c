/* Tests of the names that the flavours had before liburcu 0.11, of several flavours in one file, and of old file names. */
#include <urcu/urcu-memb.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-qsbr.h>
#include <urcu/urcu-bp.h>

#include <urcu-call-rcu.h>
#include <urcu-defer.h>
#include <urcu-flavor.h>
#include <urcu-pointer.h>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

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

static int in_section, is_let_go, is_over;

static void set(int *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
}

static void await(int *flag)
{
    while (!__atomic_load_n(flag, __ATOMIC_SEQ_CST))
        sched_yield();
}

/* A callback of memb that is in a section of mb. */
static void reads(struct rcu_head *head)
{
    (void)head;
    rcu_register_thread_mb();
    rcu_read_lock_mb();
    set(&in_section);
    await(&is_let_go);
    rcu_read_unlock_mb();
    rcu_unregister_thread_mb();
    set(&is_over);
}

/* In the parent, ends the section, and waits for the child, which returns 0. */
static int lets_go(pid_t child)
{
    set(&is_let_go);
    await(&is_over);
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* In the child, the worker of one flavour reads in another one before that one's hook is called. It keeps its reader. */
static int forks_two_flavours(void)
{
    static struct rcu_head head;
    call_rcu_before_fork_memb();
    call_rcu_before_fork_mb();
    call_rcu_memb(&head, reads);
    pid_t child = fork();
    if (child == 0) {
        call_rcu_after_fork_child_memb();
        await(&in_section);
        call_rcu_after_fork_child_mb();
        rcu_register_thread_mb();
        rcu_read_lock_mb();
        set(&is_let_go);
        await(&is_over);
        _exit(rcu_read_ongoing_mb() ? 0 : 1);
    }
    call_rcu_after_fork_parent_mb();
    call_rcu_after_fork_parent_memb();
    return lets_go(child);
}

/* A callback of memb that is in a section of bp. */
static void reads_bp(struct rcu_head *head)
{
    (void)head;
    rcu_read_lock_bp();
    set(&in_section);
    await(&is_let_go);
    rcu_read_unlock_bp();
    set(&is_over);
}

/* The same with bp, and with those of its hooks only that have nothing to do with call_rcu. */
static int forks_beside_bp(void)
{
    static struct rcu_head head;
    in_section = is_let_go = is_over = 0;
    call_rcu_before_fork_memb();
    rcu_bp_before_fork();
    call_rcu_memb(&head, reads_bp);
    pid_t child = fork();
    if (child == 0) {
        call_rcu_after_fork_child_memb();
        await(&in_section);
        rcu_bp_after_fork_child();
        struct urcu_gp_poll_state state = urcu_bp_start_poll_synchronize_rcu();
        for (int polls = 0; polls < 1000; polls++) {
            if (urcu_bp_poll_state_synchronize_rcu(state))
                _exit(1); /* the section counts no more */
            sched_yield();
        }
        set(&is_let_go);
        await(&is_over);
        while (!urcu_bp_poll_state_synchronize_rcu(state))
            sched_yield();
        _exit(0);
    }
    rcu_bp_after_fork_parent();
    call_rcu_after_fork_parent_memb();
    return lets_go(child);
}

int main(void)
{
    if (!forks_two_flavours())
        return 3;
    if (!forks_beside_bp())
        return 4;
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
