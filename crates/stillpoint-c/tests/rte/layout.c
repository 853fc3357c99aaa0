/* Prints the parts of the layout that a program can see. They are the same with either header. */
#define ALLOW_EXPERIMENTAL_API
#include <stddef.h>

#include <rte_rcu_qsbr.h>
#ifdef WITH_TIMER
#include <rte_timer.h>
#endif

#define SIZE(type) printf("sizeof(%s) = %zu, %zu\n", #type, sizeof(type), (size_t)__alignof__(type))
#define FIELD(type, field)                                                                                 \
    printf("%s.%s at %zu, %zu\n", #type, #field, offsetof(type, field), sizeof(((type *)0)->field))
#define VALUE(value) printf("%s = %llu\n", #value, (unsigned long long)(value))

int main(void)
{
    static struct rte_rcu_qsbr v;
    v.max_threads = 70;
    SIZE(struct rte_rcu_qsbr);
    FIELD(struct rte_rcu_qsbr, token);
    FIELD(struct rte_rcu_qsbr, acked_token);
    FIELD(struct rte_rcu_qsbr, num_elems);
    FIELD(struct rte_rcu_qsbr, num_threads);
    FIELD(struct rte_rcu_qsbr, max_threads);
    FIELD(struct rte_rcu_qsbr, qsbr_cnt);
    SIZE(struct rte_rcu_qsbr_cnt);
    FIELD(struct rte_rcu_qsbr_cnt, cnt);
    FIELD(struct rte_rcu_qsbr_cnt, lock_cnt);
    SIZE(struct rte_rcu_qsbr_dq_parameters);
    FIELD(struct rte_rcu_qsbr_dq_parameters, name);
    FIELD(struct rte_rcu_qsbr_dq_parameters, flags);
    FIELD(struct rte_rcu_qsbr_dq_parameters, size);
    FIELD(struct rte_rcu_qsbr_dq_parameters, esize);
    FIELD(struct rte_rcu_qsbr_dq_parameters, trigger_reclaim_limit);
    FIELD(struct rte_rcu_qsbr_dq_parameters, max_reclaim_size);
    FIELD(struct rte_rcu_qsbr_dq_parameters, free_fn);
    FIELD(struct rte_rcu_qsbr_dq_parameters, p);
    FIELD(struct rte_rcu_qsbr_dq_parameters, v);
    VALUE(__RTE_QSBR_THRID_ARRAY_ELM_SIZE);
    for (size_t threads = 1; threads < 2000; threads += 63)
        VALUE(__RTE_QSBR_THRID_ARRAY_SIZE(threads));
    VALUE((char *)__RTE_QSBR_THRID_ARRAY_ELM((&v), 3) - (char *)&v);
    VALUE(__RTE_QSBR_THRID_INDEX_SHIFT);
    VALUE(__RTE_QSBR_THRID_MASK);
    VALUE(RTE_QSBR_THRID_INVALID);
    VALUE(__RTE_QSBR_CNT_THR_OFFLINE);
    VALUE(__RTE_QSBR_CNT_INIT);
    VALUE(__RTE_QSBR_CNT_MAX);
    VALUE(__RTE_QSBR_TOKEN_SIZE);
    VALUE(RTE_RCU_QSBR_DQ_NAMESIZE);
    VALUE(RTE_RCU_QSBR_DQ_MT_UNSAFE);
#ifdef WITH_TIMER
    SIZE(struct rte_timer);
    FIELD(struct rte_timer, expire);
    FIELD(struct rte_timer, status);
    FIELD(struct rte_timer, status.state);
    FIELD(struct rte_timer, status.owner);
    FIELD(struct rte_timer, status.u32);
    FIELD(struct rte_timer, period);
    FIELD(struct rte_timer, f);
    FIELD(struct rte_timer, arg);
    VALUE(RTE_TIMER_STOP);
    VALUE(RTE_TIMER_PENDING);
    VALUE(RTE_TIMER_RUNNING);
    VALUE(RTE_TIMER_CONFIG);
    VALUE((uint64_t)(int64_t)RTE_TIMER_NO_OWNER);
    VALUE(SINGLE);
    VALUE(PERIODICAL);
    struct rte_timer timer = RTE_TIMER_INITIALIZER;
    for (size_t at = 0; at < sizeof timer; at++)
        printf("%u ", ((unsigned char *)&timer)[at]);
#endif
    return 0;
}
