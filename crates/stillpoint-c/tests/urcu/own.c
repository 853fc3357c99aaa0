/* A program that undefines names, and defines functions of the drop-in itself. If ALONE is defined, it is not linked with the library. */
#include <urcu.h>

#include <stdio.h>

#undef rcu_read_lock
#define rcu_read_lock() urcu_memb_read_lock()
#undef call_rcu
#define call_rcu(head, function) urcu_memb_call_rcu(head, function)

static int locks, calls;

void urcu_memb_read_lock(void)
{
    locks++;
}

void urcu_memb_read_unlock(void)
{
    locks--;
}

void urcu_memb_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
    calls++;
    func(head);
}

#ifdef ALONE
void urcu_memb_synchronize_rcu(void)
{
}
#endif

static void called(struct rcu_head *head)
{
    (void)head;
    calls++;
}

int main(void)
{
    struct rcu_head head;
    void (*address)(void) = urcu_memb_read_lock;
    rcu_read_lock();
    address();
    synchronize_rcu();
    if (locks != 2)
        return 1;
    rcu_read_unlock();
    rcu_read_unlock();
    call_rcu(&head, called);
    return locks != 0 || calls != 2;
}
