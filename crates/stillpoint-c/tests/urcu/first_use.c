/* Tests the first use in a child whose parent forked in the middle of its own first use. */
#include "flavour.h"

#include <sys/wait.h>

static int is_begun, called;

static void count(struct rcu_head *head)
{
    free(head);
    ADD(called, 1);
}

static void use(void)
{
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    rcu_register_thread();
    rcu_read_lock();
    rcu_read_unlock();
    call_rcu(head, count);
    synchronize_rcu();
    CHECK(create_all_cpu_call_rcu_data(0) == 0);
    rcu_barrier();
    CHECK(LOAD(called) > 0);
    rcu_unregister_thread();
}

static void *uses(void *argument)
{
    (void)argument;
    STORE(is_begun, 1);
    use();
    return NULL;
}

static void waits_for(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    for (unsigned round = 0; round < 200; round++) {
        pid_t process = fork();
        CHECK(process >= 0);
        if (process != 0) {
            waits_for(process);
            continue;
        }
        alarm(60);
        pthread_t thread = started(uses, NULL);
        AWAIT(LOAD(is_begun));
        for (unsigned spin = 0; spin < round * 50; spin++)
            __asm__ volatile("");
        call_rcu_before_fork();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            call_rcu_after_fork_child();
            use();
            _exit(0);
        }
        call_rcu_after_fork_parent();
        waits_for(child);
        CHECK(pthread_join(thread, NULL) == 0);
        _exit(0);
    }
    return 0;
}
