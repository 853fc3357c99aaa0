/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * stillpoint.h: read-copy-update that frees memory even while readers are preempted; a lock-free hash table, a timer wheel, a pool.
 *
 * A program in one screen: three threads read a configuration, one replaces it.
 *
 *     #include <pthread.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *     #include "stillpoint.h"
 *
 *     struct config { int mtu; };
 *     static struct still_domain *domain;
 *     static struct config *current;                      // what readers find
 *
 *     static int complain(void) { return fprintf(stderr, "%s\n", still_error()), 1; }
 *     static void destroy(void *object, void *context) { (void)context; free(object); }
 *
 *     static void *read_it(void *unused) {                // any number of threads
 *         struct still_reader *reader = still_reader_new(domain);
 *         if (reader == NULL) {
 *             complain();
 *             return unused;
 *         }
 *         struct still_protected held = still_protect(reader, &current);
 *         const struct config *config = held.object;      // not freed before it is released
 *         printf("mtu %d\n", config->mtu);
 *         still_release(held);
 *         still_reader_free(reader);
 *         return unused;
 *     }
 *
 *     static void replace_it(struct still_reclaimer *reclaimer, struct config *new_one) {
 *         struct config *old = still_exchange(&current, new_one);
 *         if (still_retire(reclaimer, old, sizeof *old, destroy, NULL) < 0)
 *             complain();                                 // `old` is still ours
 *         still_poll(reclaimer, STILL_ALL);               // frees what no reader holds
 *     }
 *
 *     int main(void) {
 *         struct config *first = malloc(sizeof *first), *second = malloc(sizeof *second);
 *         domain = still_domain_new(NULL);
 *         struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
 *         if (first == NULL || second == NULL || reclaimer == NULL)
 *             return complain();
 *         first->mtu = 1500;
 *         second->mtu = 9000;
 *         still_store(&current, first);
 *
 *         pthread_t readers[3];
 *         for (int i = 0; i < 3; i++)
 *             if (pthread_create(&readers[i], NULL, read_it, NULL) != 0)
 *                 return 1;
 *         replace_it(reclaimer, second);
 *         for (int i = 0; i < 3; i++)
 *             pthread_join(readers[i], NULL);
 *
 *         still_reclaimer_free(reclaimer);                // what it still has passes to the domain
 *         still_domain_free(domain);
 *         free(current);
 *     }
 *
 * WORDS
 *   A domain joins readers and reclaimers. A reader is a thread's right to read; it belongs to the thread that made it.
 *   An object is retired when no link leads to it any more, and destroyed when no reader can hold it.
 *   A region (still_pin, or a QSBR reader that is online) holds up everything that is retired after the region began.
 *   A protected load (still_protect) holds up one object. A thread that is preempted meanwhile holds up nothing else.
 *
 * ERRORS
 *   Functions that return int, int64_t or ssize_t return 0 or more, or a negative errno. Those that return a pointer return NULL
 *   on failure, and set errno. still_error() gives the reason in words. Every function that takes a handle returns
 *     -EINVAL  for NULL, for a handle of another kind, and for a struct whose size is not set;
 *     -EBADF   for a handle that was freed, until its place is used again;
 *     -EBUSY   for a one-thread handle that a caller further up the stack is using: a destructor polls the reclaimer that runs it;
 *     -EPERM   for a reader of another thread, where the thread matters;
 *     -EINVAL  for a time that is negative and not STILL_FOREVER;
 *     -ENOTRECOVERABLE for a defect of the library, which has printed a message. Who owns an object that was passed is unknown then.
 *   The inline functions check nothing, unless STILL_CHECKED is defined before this header is included. Then they abort with a
 *   message when they are given a wrong handle, or one of another thread; when an unpin has no pin, or a release no protected load;
 *   when a reader reports that is offline, or that a call further up the stack is using.
 *
 * THREADS
 *   A domain, a background reclaimer, a queue of callbacks, a table and a pool may be used by any number of threads at once.
 *   A reader and a local are for the thread that made them; a reclaimer, a hold and a wheel are for one thread at a time. Freeing
 *   a handle while another thread uses it is a defect of the program.
 *   A signal handler may call still_pin and still_unpin, in pairs, still_load and still_is_pinned, and no other function.
 *   Threads may be cancelled, if their cancellation is deferred: one that arrives during a call waits until the call has returned.
 *   A thread that may be cancelled asynchronously calls nothing here.
 *   A reader or a local that its thread has not freed is freed when the thread ends, also if it is cancelled, with all that it
 *   holds: in the third round of destructors of keys (pthread_key_create), so that destructors of C++ and those of keys, in the
 *   first two rounds, may use it. If a thread has nothing before that, what the destructor of a key makes is for it to free. The
 *   main thread does not end if it returns from main.
 *
 * FORK
 *   A child has one thread. It calls still_reset_after_fork before it waits or frees; a background reclaimer has no thread there,
 *   and refuses objects; a queue is given another thread by still_queue_start. A parent pauses its queues first, and forks while no
 *   other thread changes a table.
 *
 * MEMORY
 *   Making things, retiring, second and further protected loads, and insertions of keys that lie behind a pointer allocate. As
 *   everywhere in Rust, the process ends where that fails, except in still_table_new, still_wheel_new, still_pool_new and
 *   insertions of short keys, which return. Pools, wheels, still_call, polls and lookups allocate nothing.
 *
 * STRUCTS THAT GROW
 *   Structs that begin with `size` may get more fields in later versions. A library reads what a program knows, and takes the rest
 *   as 0; it refuses options that it does not know itself (-EINVAL), unless they are 0. It writes what there is room for, and
 *   sets to 0 what it does not know.
 *
 * DESTRUCTORS AND CALLBACKS
 *   They are called by whichever thread frees: within still_poll, still_flush, still_retire of a full reclaimer, still_synchronize,
 *   still_barrier, or on a thread of the library. They may call any function of this header. They must return: no exception, no
 *   longjmp, no pthread_exit.
 *
 * ORDERING
 *   What a thread does before it links an object (still_store, still_exchange) happens before what a reader that finds the object
 *   does with it. What readers do with an object happens before its destructor runs.
 *
 * Times are in nanoseconds. Linux only. C11, or C++17; GCC or Clang.
 */
#ifndef STILLPOINT_H
#define STILLPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if UINTPTR_MAX != UINT64_MAX || !defined(__linux__)
#error "stillpoint.h is for 64-bit Linux"
#endif
#if defined(__cplusplus) && __cplusplus < 201703L
#error "stillpoint.h needs C++17 or newer"
#elif !defined(__cplusplus) && (!defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L)
#error "stillpoint.h needs C11 or newer"
#endif

#ifdef STILL_CHECKED
#include <stdio.h>
#include <stdlib.h>
#endif

#ifdef __cplusplus
extern "C" {
#define STILL_NOEXCEPT noexcept
#else
#define STILL_NOEXCEPT
#endif

#define STILL_VERSION_MAJOR 0
#define STILL_VERSION_MINOR 1
#define STILL_VERSION_PATCH 0

/* The layout of what inline functions touch. Programs pass this number when they make a reader; a library with another number
 * refuses (EPROTO). */
#define STILL_LAYOUT 1u

/* As the limit of a call: no limit. */
#define STILL_ALL SIZE_MAX
/* As a time: no end. */
#define STILL_FOREVER INT64_C(-1)

#define STILL_NODISCARD __attribute__((__warn_unused_result__))

/* The version of the library, as "0.1.0". */
const char *still_version(void) STILL_NOEXCEPT;

/* Why this thread's last failed call failed, in words; "" if no call has failed. The text stays until another call of this
 * thread fails. Never NULL. */
const char *still_error(void) STILL_NOEXCEPT;

/* Called with a line of text where a call cannot return an error: a drop-in whose functions return nothing was misused, or a wait
 * goes on for ever. By whichever thread made the call, several at a time. `report` is valid until the function returns. Without a
 * hook, still_error() has the text on that thread. The function may call any function of this header: what is reported on
 * its thread meanwhile does not call it again. It must return. */
typedef void still_report_fn(const char *report, void *context) STILL_NOEXCEPT;

/* Has `hook` called with each report of this process from now on, and `context`; NULL: nothing is called. Any thread may call it. Other
 * threads may be in the hook of before, so that its context stays valid. Each call keeps 24 bytes for ever. */
void still_on_report(still_report_fn *hook, void *context) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Domains
 */

struct still_domain;

/* How the barriers of readers and writers are shared out. */
enum still_mode {
    STILL_MODE_BEST = 0,       /* asymmetric where the kernel has membarrier(2), else symmetric */
    STILL_MODE_SYMMETRIC = 1,  /* readers issue full fences; needs nothing from the kernel */
    STILL_MODE_ASYMMETRIC = 2, /* readers issue no fences, writers issue a membarrier(2) now and then */
};

/* What is done about a region reader that holds up writers because it waits for a CPU. */
enum still_boost {
    STILL_BOOST_OFF = 0,
    STILL_BOOST_REALTIME = 1, /* its thread is raised to a real-time priority; needs CAP_SYS_NICE or RLIMIT_RTPRIO */
    STILL_BOOST_MIGRATE = 2,  /* its thread is moved to the CPU of the thread that waits for it */
};

enum still_reader_kind { STILL_KIND_GUARD = 0, STILL_KIND_QSBR = 1 };

/* What a thread is doing, according to /proc. */
enum still_activity {
    STILL_ACTIVITY_UNKNOWN = 0,
    STILL_ACTIVITY_RUNNING = 1,  /* on a CPU */
    STILL_ACTIVITY_RUNNABLE = 2, /* waits for a CPU: it was preempted */
    STILL_ACTIVITY_SLEEPING = 3,
    STILL_ACTIVITY_ENDED = 4,    /* the thread is gone, and has left its region open */
};

/* A region reader that holds up a grace period. */
struct still_stall {
    size_t size;       /* set by the caller of still_stall: sizeof(struct still_stall) */
    uint32_t thread;   /* the thread's id, as gettid(2) returns it; 0 if it is not known */
    uint32_t kind;     /* enum still_reader_kind */
    uint32_t activity; /* enum still_activity */
    uint32_t others;   /* how many other readers hold up the grace period too */
    int64_t waited;    /* how long a grace period has waited for this reader */
    uint64_t objects;  /* how many objects are pending behind it */
    uint64_t bytes;    /* their bytes */
    char name[16];     /* the thread's name, as in /proc; "" if it is not known */
};

/* Called when a reader has held up a grace period for the threshold: once for each section of the reader, by whichever thread
 * notices. Several threads may call it at the same time. `stall` is valid until the function returns. The function may use the
 * domain, but must not wait for it. */
typedef void still_stall_fn(const struct still_stall *stall, void *context) STILL_NOEXCEPT;

struct still_domain_options {
    size_t size;              /* sizeof(struct still_domain_options) */
    const char *name;         /* for messages; copied; NULL: messages give a number */
    uint32_t mode;            /* enum still_mode */
    uint32_t boost;           /* enum still_boost */
    uint32_t boost_fallback;  /* instead, if this process may not do `boost`; if it equals `boost`, making the domain fails instead */
    uint32_t reserved;        /* 0 */
    int64_t boost_after;      /* how long a grace period is held up before a reader is boosted; 0: 50 us */
    size_t max_pending;       /* objects that may wait in the whole domain; 0: no limit */
    size_t max_pending_bytes; /* 0: no limit */
    int64_t stall_after;      /* threshold for on_stall */
    still_stall_fn *on_stall; /* NULL: nothing is called */
    void *context;            /* passed to on_stall */
};

#define STILL_DOMAIN_OPTIONS_INIT { sizeof(struct still_domain_options), NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL }

/* Makes a domain. `options` may be NULL.
 * errno: EINVAL; EOPNOTSUPP: the kernel has no membarrier(2) for STILL_MODE_ASYMMETRIC; EPERM: this process may not boost
 * threads. */
STILL_NODISCARD struct still_domain *still_domain_new(const struct still_domain_options *options) STILL_NOEXCEPT;

/* The domain that all parts of a process may share; it is also the default domain of Rust code. Each call returns another
 * handle. */
STILL_NODISCARD struct still_domain *still_domain_default(void) STILL_NOEXCEPT;

/* Frees the handle. The domain ends when its last handle is freed, those of its readers, reclaimers, queues and holds
 * included. What is pending then is destroyed. */
int still_domain_free(struct still_domain *domain) STILL_NOEXCEPT;

struct still_stats {
    size_t size;            /* set by the caller: sizeof(struct still_stats) */
    uint64_t grace_periods; /* started */
    uint64_t heavy_fences;  /* each interrupts the cores that run the process */
    uint64_t retired;       /* objects and callbacks */
    uint64_t freed;
    uint64_t pending;
    uint64_t pending_bytes;
    uint64_t beyond_limits; /* objects that were taken in although the domain was full, because they could not be refused */
    uint64_t handed_back;   /* retirements that were refused for lack of room */
    uint64_t waits;         /* retirements that waited for room */
    uint64_t pinned;        /* pending objects that protected loads held at the last poll */
    int64_t oldest;         /* how long the oldest grace period with pending objects has lasted; -1: there is none */
    uint64_t readers;       /* registered, of both kinds */
    uint64_t holds;         /* protected loads that are bound to no thread */
    uint64_t boosted;       /* how often a reader was boosted */
    uint64_t boost_refused;
    int32_t fence_error;    /* why the last heavy fence failed, a positive errno; 0: it did not fail. Until one succeeds, nothing is freed */
    int32_t reserved;
};

/* Sums over counters of all threads: exact when the domain is idle, slightly out of date otherwise. Looks at each reclaimer
 * and reader. */
int still_domain_stats(const struct still_domain *domain, struct still_stats *stats) STILL_NOEXCEPT;

/* Finds the region reader that holds up the oldest grace period: 1, and fills `stall`; or 0 if there is none. Looks at each
 * reader, and in /proc. */
int still_domain_stall(const struct still_domain *domain, struct still_stall *stall) STILL_NOEXCEPT;

/* Starts a grace period, and returns its number. It is over when every reader that is in a region now has left that region.
 * Later grace periods have greater numbers; no number is 0. 0: an error, with errno. */
STILL_NODISCARD uint64_t still_start(const struct still_domain *domain) STILL_NOEXCEPT;

/* 1 if the grace period is over, 0 if not. Never waits. Looks at each reader, unless the grace period is already known to be
 * over.
 * -EINVAL also for a number that the domain has not started; one of another domain is not told from it. An error of the heavy fence is returned as its errno. */
STILL_NODISCARD int still_check(const struct still_domain *domain, uint64_t token) STILL_NOEXCEPT;

/* Waits until the grace period is over, for at most `timeout`; STILL_FOREVER: as long as it takes.
 * -ETIMEDOUT: a reader holds it up; still_error() describes the reader. -EDEADLK: this thread is in a region of the domain,
 * and would wait for itself. */
STILL_NODISCARD int still_wait(const struct still_domain *domain, uint64_t token, int64_t timeout) STILL_NOEXCEPT;

/* Starts a grace period and waits for it, as still_wait does; then destroys what was left to the domain. From any thread,
 * registered or not. A thread with an online QSBR reader calls still_qsbr_synchronize instead. */
STILL_NODISCARD int still_synchronize(const struct still_domain *domain, int64_t timeout) STILL_NOEXCEPT;

/* Waits until everything that was left to the domain before this call is destroyed. For the end of a program, or before code
 * is unloaded. The errors of still_wait; -EDEADLK also from a destructor, and when a protected load of this thread holds one
 * of the objects. */
STILL_NODISCARD int still_barrier(const struct still_domain *domain, int64_t timeout) STILL_NOEXCEPT;

/* In the child of a fork(2), which has one thread: lets go of what the readers of the parent's other threads held. After this
 * call the child must not use what it was lent through those readers. Without this call, nothing that they held is freed in
 * the child. */
int still_reset_after_fork(const struct still_domain *domain) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Readers
 */

/* The part of a handle that inline functions read. Programs do not use it: still_reader and still_qsbr are handles like any
 * other. */
struct still_head_ {
    void *record;
    const uint64_t *token;
    uint32_t flags;
    uint32_t nested;
    uint32_t mark;
    uint32_t in_use;
};

#define STILL_STATE_ 0
#define STILL_ATTENTION_ 8
#define STILL_HAZARD_ 56
#define STILL_FULL_FENCE_ 1u
#define STILL_MARK_READER_ 0x5d0a0002u
#define STILL_MARK_QSBR_ 0x5d0a0003u

/* A reader with pins and protected loads. */
struct still_reader {
    struct still_head_ head_;
};

/* A reader that reports quiescent states. While it is online, it is always in a region; each report ends one and begins the
 * next. */
struct still_qsbr {
    struct still_head_ head_;
};

struct still_reader *still_reader_new_(const struct still_domain *domain, uint32_t layout) STILL_NOEXCEPT;
struct still_qsbr *still_qsbr_new_(const struct still_domain *domain, uint32_t layout) STILL_NOEXCEPT;
void still_answer_(struct still_head_ *head) STILL_NOEXCEPT;
int still_is_mine_(const struct still_head_ *head) STILL_NOEXCEPT;
void *still_slot_(struct still_reader *reader) STILL_NOEXCEPT;
void still_slot_release_(void *slot) STILL_NOEXCEPT;

/* Makes the calling thread a reader. Keep the reader as long as the thread lives: making one costs a full fence, and sometimes
 * an allocation. A thread may have several. errno: EPROTO: the program was compiled against another layout: recompile it;
 * EAGAIN: the process has used up its keys (pthread_key_create). */
STILL_NODISCARD static inline struct still_reader *still_reader_new(const struct still_domain *domain)
{
    return still_reader_new_(domain, STILL_LAYOUT);
}

/* The same, for quiescent states. The new reader is online. */
STILL_NODISCARD static inline struct still_qsbr *still_qsbr_new(const struct still_domain *domain)
{
    return still_qsbr_new_(domain, STILL_LAYOUT);
}

/* Ends a reader, with its pins and protected loads. For the reader's own thread (-EPERM on another one), whose end does it
 * otherwise. */
int still_reader_free(struct still_reader *reader) STILL_NOEXCEPT;
int still_qsbr_free(struct still_qsbr *qsbr) STILL_NOEXCEPT;

/* A pointer type through which pointers of any type may be read. */
typedef void *__attribute__((__may_alias__)) still_any_;

#ifdef STILL_CHECKED
static inline void still_must_(int condition, const char *function, const char *what)
{
    if (!condition) {
        fprintf(stderr, "%s: %s\n", function, what);
        abort();
    }
}
static inline void still_test_(const struct still_head_ *head, uint32_t mark, const char *function)
{
    still_must_(head != NULL && __atomic_load_n(&head->mark, __ATOMIC_ACQUIRE) == mark, function,
                "not a reader of this kind, or one that was freed");
    still_must_(still_is_mine_(head), function, "the reader belongs to another thread");
}
#define STILL_TEST_(head, mark) still_test_((head), (mark), __func__)
#define STILL_MUST_(condition, what) still_must_((condition), __func__, (what))
#else
#define STILL_TEST_(head, mark) ((void)0)
#define STILL_MUST_(condition, what) ((void)0)
#endif

static inline uint64_t *still_state_(const struct still_head_ *head)
{
    return (uint64_t *)(void *)((char *)head->record + STILL_STATE_);
}

/* Tells whoever waits for a change of the state that it has changed. */
static inline void still_tell_(struct still_head_ *head)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(
            __atomic_load_n((uint32_t *)(void *)((char *)head->record + STILL_ATTENTION_), __ATOMIC_RELAXED) != 0, 0))
        still_answer_(head);
}

/* GCC warns that ThreadSanitizer does not know fences; the library tells it what they order. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/* The reader's side of the pair that orders a store before later loads; the writer's is the heavy fence. */
static inline void still_fence_(const struct still_head_ *head)
{
    if (__builtin_expect(head->flags & STILL_FULL_FENCE_, 0u))
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    else
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#if defined(__SANITIZE_THREAD__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic pop
#endif

/* Reports a quiescent state: this thread no longer holds anything that it has loaded. Two loads and a compare; also a store if
 * a grace period has begun since the last report. A report brings a reader that is offline online, but without the order that
 * still_online gives: use still_online. */
static inline void still_quiescent(struct still_qsbr *qsbr)
{
    struct still_head_ *head = &qsbr->head_;
    STILL_TEST_(head, STILL_MARK_QSBR_);
    STILL_MUST_(__atomic_load_n(still_state_(head), __ATOMIC_RELAXED) != 0, "the reader is offline: use still_online");
    STILL_MUST_(head->in_use == 0, "a call further up the stack is using the reader");
    /* Acquire: pairs with the read-modify-write of start. */
    uint64_t token = __atomic_load_n(head->token, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(still_state_(head), __ATOMIC_RELAXED) != token) {
        /* Release: pairs with the acquire load of check. */
        __atomic_store_n(still_state_(head), token, __ATOMIC_RELEASE);
        still_tell_(head);
    }
}

/* Takes a QSBR reader offline before its thread blocks: nobody waits for it, and it holds nothing. Calling it again is harmless.
 * -EPERM on another thread. */
int still_offline(struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* Brings it back online; a full fence. Calling it again is harmless. */
int still_online(struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* 1 if it is online, 0 if not. */
STILL_NODISCARD int still_is_online(const struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* As still_synchronize, for a thread on which this reader is online: the reader is offline during the call. */
STILL_NODISCARD int still_qsbr_synchronize(struct still_qsbr *qsbr, int64_t timeout) STILL_NOEXCEPT;

/* Begins a region: what this thread loads from now on is not freed before the matching still_unpin. Regions nest. */
static inline void still_pin(struct still_reader *reader)
{
    struct still_head_ *head = &reader->head_;
    STILL_TEST_(head, STILL_MARK_READER_);
    if (__atomic_load_n(still_state_(head), __ATOMIC_RELAXED) == 0) {
        /* Acquire: pairs with the read-modify-write of start. */
        uint64_t token = __atomic_load_n(head->token, __ATOMIC_ACQUIRE);
        /* Release: pairs with the acquire load of check. The fence below orders this store before the loads of the region. */
        __atomic_store_n(still_state_(head), token, __ATOMIC_RELEASE);
        still_fence_(head);
    } else {
        head->nested++;
    }
}

/* Undoes one still_pin. The outermost one ends the region. */
static inline void still_unpin(struct still_reader *reader)
{
    struct still_head_ *head = &reader->head_;
    STILL_TEST_(head, STILL_MARK_READER_);
    STILL_MUST_(__atomic_load_n(still_state_(head), __ATOMIC_RELAXED) != 0, "without a still_pin");
    STILL_MUST_(head->nested != 0 || head->in_use == 0, "this would end the region of a call further up the stack");
    if (head->nested == 0) {
        /* Release: pairs with the acquire load of check: what was done in the region comes before the free. */
        __atomic_store_n(still_state_(head), (uint64_t)0, __ATOMIC_RELEASE);
        still_tell_(head);
    } else {
        head->nested--;
    }
}

/* 1 in a region of this reader, 0 outside. */
STILL_NODISCARD static inline int still_is_pinned(const struct still_reader *reader)
{
    STILL_TEST_(&reader->head_, STILL_MARK_READER_);
    return __atomic_load_n(still_state_(&reader->head_), __ATOMIC_RELAXED) != 0;
}

/* In the functions below, `link` is the address of a pointer, T **: a T * does not compile. In C they are macros over the functions
 * whose names end with an underscore, and return void *; in C++ they are templates, and return T *. */

/* Loads the pointer at `link`, in a region: under still_pin, or by a QSBR reader that is online. */
STILL_NODISCARD static inline void *still_load_(const void *link)
{
    /* Acquire: pairs with still_store and still_exchange. */
    return __atomic_load_n((still_any_ const *)link, __ATOMIC_ACQUIRE);
}

/* Stores a pointer at `link`, which must not be shared yet, or must hold nothing that has to be retired. */
static inline void still_store_(void *link, const void *object)
{
    /* Release: pairs with still_load and still_protect. */
    __atomic_store_n((still_any_ *)link, (void *)(uintptr_t)object, __ATOMIC_RELEASE);
}

/* Exchanges the pointer at `link`, and returns the old one: retire that object if nothing else leads to it. */
STILL_NODISCARD static inline void *still_exchange_(void *link, const void *object)
{
    return __atomic_exchange_n((still_any_ *)link, (void *)(uintptr_t)object, __ATOMIC_ACQ_REL);
}

/* Puts `object` at `link` if `expected` is there: 1, and `expected` is to be retired if nothing else leads to it; or 0, and nothing
 * has changed. For several writers. While they compare, `expected` must not be freed and its memory be used again: they hold it, or
 * are in a region. */
STILL_NODISCARD static inline int still_compare_exchange_(void *link, const void *expected, const void *object)
{
    still_any_ there = (void *)(uintptr_t)expected;
    return __atomic_compare_exchange_n((still_any_ *)link, &there, (void *)(uintptr_t)object, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
        ? 1 : 0;
}

/* An object that a protected load holds, and the slot that says so. */
struct still_protected {
    void *object; /* NULL: there was none, and there is nothing to release */
    void *slot_;
};

/* Lets go of a protected object, on the reader's thread. Does nothing if the object is NULL. */
static inline void still_release(struct still_protected held)
{
    STILL_MUST_(held.slot_ == NULL || __atomic_load_n((void **)held.slot_, __ATOMIC_RELAXED) == held.object,
                "it was released already");
    /* A reader's first slot is recognised by its address, which is not a multiple of 16. */
    if (__builtin_expect(((uintptr_t)held.slot_ & 8u) != 0, 1)) {
        /* Release: pairs with the acquire load of a scan: what was done with the object comes before its free. */
        __atomic_store_n((void **)held.slot_, NULL, __ATOMIC_RELEASE);
    } else {
        still_slot_release_(held.slot_);
    }
}

/* Loads the pointer at `link`, and holds the object that it points to until the object is released or the
 * reader is freed. The object must be alive as long as it is linked there, and be retired by exactly this address, in the
 * domain of the reader. Starts over whenever `link` changes meanwhile. */
STILL_NODISCARD static inline struct still_protected still_protect_(struct still_reader *reader, const void *link)
{
    struct still_head_ *head = &reader->head_;
    STILL_TEST_(head, STILL_MARK_READER_);
    struct still_protected held = { __atomic_load_n((still_any_ const *)link, __ATOMIC_RELAXED), NULL };
    if (held.object == NULL)
        return held;
    void **slot = (void **)(void *)((char *)head->record + STILL_HAZARD_);
    if (__builtin_expect(__atomic_load_n(slot, __ATOMIC_RELAXED) != NULL, 0))
        slot = (void **)still_slot_(reader);
    held.slot_ = slot;
    for (;;) {
        /* Release, and the fence: pairs with the acquire load of a scan after a heavy fence. Either the scan sees this store, or the
         * next load sees the unlink. */
        __atomic_store_n(slot, held.object, __ATOMIC_RELEASE);
        still_fence_(head);
        /* Acquire: pairs with still_store and still_exchange. */
        void *now = __atomic_load_n((still_any_ const *)link, __ATOMIC_ACQUIRE);
        if (now == held.object)
            return held;
        if (now == NULL) {
            still_release(held);
            held.object = NULL;
            held.slot_ = NULL;
            return held;
        }
        held.object = now;
    }
}

/* A protected load that is bound to no thread: another thread may release it. For one thread at a time. */
struct still_hold;
/* errno: EINVAL, EBADF. */
STILL_NODISCARD struct still_hold *still_hold_new(const struct still_domain *domain) STILL_NOEXCEPT;
/* As still_protect; lets go of what was held before. NULL: there is no object; or, with errno, the handle is invalid. */
STILL_NODISCARD void *still_hold_protect_(struct still_hold *hold, const void *link) STILL_NOEXCEPT;
/* Lets go of what the hold holds. */
int still_hold_release(struct still_hold *hold) STILL_NOEXCEPT;
int still_hold_free(struct still_hold *hold) STILL_NOEXCEPT;

#ifdef __cplusplus
extern "C++" {
template <class L> struct still_link_ {
    static_assert(sizeof(L) == 0, "this takes the address of a pointer: &p, not p");
};
template <class T> struct still_link_<T *> {
    using pointer = T *;
};
template <class L>
STILL_NODISCARD static inline typename still_link_<L>::pointer still_load(const L *link) noexcept
{
    return static_cast<typename still_link_<L>::pointer>(still_load_(link));
}
template <class L>
static inline void still_store(L *link, typename still_link_<L>::pointer object) noexcept
{
    still_store_(link, object);
}
template <class L>
STILL_NODISCARD static inline typename still_link_<L>::pointer still_exchange(L *link,
                                                                              typename still_link_<L>::pointer object) noexcept
{
    return static_cast<typename still_link_<L>::pointer>(
        still_exchange_(link, object));
}
template <class L>
STILL_NODISCARD static inline int still_compare_exchange(L *link, typename still_link_<L>::pointer expected,
                                                         typename still_link_<L>::pointer object) noexcept
{
    return still_compare_exchange_(link, expected, object);
}
template <class L>
STILL_NODISCARD static inline struct still_protected still_protect(struct still_reader *reader, const L *link) noexcept
{
    static_assert(sizeof(still_link_<L>) > 0);
    return still_protect_(reader, link);
}
template <class L>
STILL_NODISCARD static inline typename still_link_<L>::pointer still_hold_protect(struct still_hold *hold, const L *link) noexcept
{
    return static_cast<typename still_link_<L>::pointer>(
        still_hold_protect_(hold, link));
}
}
#else
/* 5 is what the compilers call a pointer. */
#define STILL_LINK_(link)                                                                                              \
    ((void)sizeof(struct {                                                                                             \
        _Static_assert(__builtin_classify_type(*(link)) == 5, "this takes the address of a pointer: &p, not p");       \
        char unused_;                                                                                                  \
    }))
#define still_load(link) (STILL_LINK_(link), still_load_(link))
#define still_store(link, object) (STILL_LINK_(link), still_store_((link), (object)))
#define still_exchange(link, object) (STILL_LINK_(link), still_exchange_((link), (object)))
#define still_compare_exchange(link, expected, object)                                                                 \
    (STILL_LINK_(link), still_compare_exchange_((link), (expected), (object)))
#define still_protect(reader, link) (STILL_LINK_(link), still_protect_((reader), (link)))
#define still_hold_protect(hold, link) (STILL_LINK_(link), still_hold_protect_((hold), (link)))
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * Writers
 */

/* Destroys an object: called once, when no reader can hold it. */
typedef void still_destroy_fn(void *object, void *context) STILL_NOEXCEPT;

/* What a retirement does when there is no room. */
enum still_when_full {
    STILL_FULL_HAND_BACK = 0, /* it fails, and the object stays the caller's */
    STILL_FULL_RECLAIM = 1,   /* background only: the caller frees a share of what others have submitted; still no room: it fails */
    STILL_FULL_WAIT = 2,      /* it waits for room, for full_wait at most, then it fails; never without an end for its own thread */
};

struct still_reclaimer_options {
    size_t size;              /* sizeof(struct still_reclaimer_options) */
    size_t max_pending;       /* objects that may wait; 0: 65,536, or 1,048,576 for a background reclaimer */
    size_t max_pending_bytes; /* 0: no limit */
    size_t batch;             /* as many objects start a grace period at once; 0: 128 */
    int64_t fence_interval;   /* between grace periods for less than a batch; 0: 50 us; STILL_FOREVER: only full batches; 1 is the shortest */
    uint32_t when_full;       /* enum still_when_full */
    uint32_t reserved;        /* 0 */
    int64_t full_wait;        /* for STILL_FULL_WAIT */
    size_t stack_size;        /* background only: as in struct still_thread_options */
    const char *thread_name;  /* background only: likewise */
};

#define STILL_RECLAIMER_OPTIONS_INIT { sizeof(struct still_reclaimer_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL }

/* A queue of retired objects that its owner polls: it needs no thread of its own. For one thread at a time. */
struct still_reclaimer;

/* `options` may be NULL. errno: EINVAL, EBADF. */
STILL_NODISCARD struct still_reclaimer *
still_reclaimer_new(const struct still_domain *domain, const struct still_reclaimer_options *options) STILL_NOEXCEPT;

/* Frees the queue. What is pending passes to the domain, whose other reclaimers free it. */
int still_reclaimer_free(struct still_reclaimer *reclaimer) STILL_NOEXCEPT;

/* Takes in an object that no link leads to any more: destroy(object, context) is called when no reader can hold it. `object` is
 * the address that readers protect, not that of a member; `bytes` is its size, for limits and statistics. Constant time,
 * amortised.
 * -ENOSPC: the reclaimer is full of objects that readers hold up; -EDQUOT: the domain is; -EDEADLK: it would wait for room with
 * STILL_FOREVER, and this thread is in a region, or its own protected loads hold everything that waits. In all these cases the
 * object stays the caller's. If a destructor that this reclaimer runs calls it, it leaves the object to the domain. */
STILL_NODISCARD int still_retire(struct still_reclaimer *reclaimer, void *object, size_t bytes, still_destroy_fn *destroy,
                                 void *context) STILL_NOEXCEPT;

/* Frees what is ready. Looks at `limit` objects at most, and returns how many it has freed. Never waits for a reader. */
ssize_t still_poll(struct still_reclaimer *reclaimer, size_t limit) STILL_NOEXCEPT;

/* Waits until everything that was retired here is freed, for at most `timeout`. The errors of still_wait; -EDEADLK also when a
 * protected load of this thread holds one of the objects, -ETIMEDOUT when one of another thread does. */
STILL_NODISCARD int still_flush(struct still_reclaimer *reclaimer, int64_t timeout) STILL_NOEXCEPT;

/* How many objects wait here. */
ssize_t still_pending(const struct still_reclaimer *reclaimer) STILL_NOEXCEPT;

/* Retires without a reclaimer: the object is left to the domain. Polls of the domain's reclaimers free it, as do
 * still_synchronize and still_barrier; if none of these is ever called, it is not freed. It cannot be refused: see
 * still_stats.beyond_limits. From any thread. */
int still_leave(const struct still_domain *domain, void *object, size_t bytes, still_destroy_fn *destroy, void *context) STILL_NOEXCEPT;

/* A thread of the library. It runs on the CPUs of the thread that starts it (pthread_setaffinity_np), at its priority. Signals are
 * blocked on it, but for those of defects (SIGSEGV, SIGABRT and so on) and SIGPROF. */
struct still_thread_options {
    size_t size;       /* sizeof(struct still_thread_options) */
    size_t stack_size; /* bytes; 0: as pthread_create gives to any thread. Destructors and callbacks use it */
    const char *name;  /* as gdb and top show it, 15 characters of it; copied; NULL: "stillpoint-rcu" */
};

#define STILL_THREAD_OPTIONS_INIT { sizeof(struct still_thread_options), 0, NULL }

/* A reclaimer with a thread of its own, to which any thread submits. */
struct still_background;

/* Makes a background reclaimer, and starts its thread. errno: EINVAL, EBADF; EAGAIN: the thread could not be started. */
STILL_NODISCARD struct still_background *
still_background_new(const struct still_domain *domain, const struct still_reclaimer_options *options) STILL_NOEXCEPT;

/* As still_retire, from any thread; -EDEADLK in a region only: do not wait while this thread's protected loads hold what it has
 * submitted. In a destructor, the object is left to the domain. -EPIPE: in the child of a fork(2), where the
 * background reclaimer has no thread. */
STILL_NODISCARD int still_submit(struct still_background *background, void *object, size_t bytes, still_destroy_fn *destroy,
                                 void *context) STILL_NOEXCEPT;

/* How many objects were submitted and are not freed yet. */
ssize_t still_background_pending(const struct still_background *background) STILL_NOEXCEPT;

/* Stops the background reclaimer: frees everything that was submitted, waits for the thread's end, and frees the handle.
 * Objects that readers still hold after `timeout` pass to the domain, whose other reclaimers free them; returns how many
 * passed. A destructor that is running is waited for, however long it takes. -EDEADLK: called from a destructor, or in a region of
 * this thread; the handle stays valid. In the child of a fork(2): frees the handle only, and returns how many objects are lost. */
ssize_t still_background_free(struct still_background *background, int64_t timeout) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Callbacks in the program's own objects: no allocation, never full
 */

/* Two words, anywhere in an object. They belong to the queue from still_call until the callback begins. */
struct still_callback {
    void *words_[2];
};

/* Three words, for objects that protected loads may hold. The first two are a struct still_callback. */
struct still_object_callback {
    struct still_callback callback;
    void *word_;
};

typedef void still_callback_fn(struct still_callback *callback) STILL_NOEXCEPT;

/* A queue of callbacks. Any thread may push. Whoever calls still_queue_run, still_queue_poll or still_queue_barrier serves it,
 * one thread at a time. */
struct still_queue;

/* errno: EINVAL, EBADF. */
STILL_NODISCARD struct still_queue *still_queue_new(const struct still_domain *domain) STILL_NOEXCEPT;

/* Frees the handle. Callbacks that wait pass to the domain, whose reclaimers call them, also if the queue was paused; this
 * allocates. The thread of still_queue_start is joined: it ends after the callback that is running, and 63 more at most, whatever
 * readers do. Join other threads that serve the queue first. In the child of a fork(2), where that thread is the parent's, call
 * still_queue_barrier first: what waits is lost. -EBUSY from a callback of the queue. */
int still_queue_free(struct still_queue *queue) STILL_NOEXCEPT;

/* Gives the queue a thread of the library, which serves it until still_queue_free, or until everything was called after
 * still_queue_stop; still_queue_barrier leaves the callbacks to it. `options` may be NULL. -EAGAIN: the thread cannot be made; the queue is as before, and the call may be
 * repeated. -EALREADY: it has one. In the child of a fork(2), after still_queue_reset_after_fork, it may get another one. */
int still_queue_start(struct still_queue *queue, const struct still_thread_options *options) STILL_NOEXCEPT;

/* Calls function(callback) after a grace period, in the order in which callbacks were pushed. The grace period waits for
 * regions, not for protected loads. Wait-free: an exchange and a store, and a system call if a thread that serves the queue
 * sleeps for lack of work. */
int still_call(struct still_queue *queue, struct still_callback *callback, still_callback_fn *function) STILL_NOEXCEPT;

/* The same for an object that protected loads may hold; `object` is the address that they protect. In no particular order. */
int still_call_object(struct still_queue *queue, struct still_object_callback *callback, void *object,
                      still_callback_fn *function) STILL_NOEXCEPT;

/* Calls the callbacks whose grace period is over, `limit` at most, and returns how many it called. Never waits. 0 also while
 * another thread serves the queue. */
ssize_t still_queue_poll(struct still_queue *queue, size_t limit) STILL_NOEXCEPT;

/* Serves the queue on this thread until still_queue_stop is called; sleeps while there is nothing to do. -EDEADLK: in a region
 * of this thread. */
int still_queue_run(struct still_queue *queue) STILL_NOEXCEPT;

/* Lets still_queue_run return once every callback was called. Later calls of still_queue_run do the same: this cannot be undone. */
int still_queue_stop(struct still_queue *queue) STILL_NOEXCEPT;

/* Waits until every callback that was pushed before has been called, except those of objects that protected loads hold, and for
 * at most `timeout`. Serves the queue itself if no other thread does, and calls
 * what protected loads have let go of; waits on while the queue is paused.
 * -ETIMEDOUT: still_error() describes the reader, if one holds it up. -EDEADLK from a callback of the queue, in a region of this
 * thread, or while this thread has paused the queue. */
STILL_NODISCARD int still_queue_barrier(struct still_queue *queue, int64_t timeout) STILL_NOEXCEPT;

/* Waits for the callback that is running; from then on no callback runs, until still_queue_resume. Pauses nest. -EDEADLK from
 * a callback of the queue. */
STILL_NODISCARD int still_queue_pause(struct still_queue *queue) STILL_NOEXCEPT;
/* Ends a pause, one of this thread's if there is one. -EINVAL: it is not paused. */
int still_queue_resume(struct still_queue *queue) STILL_NOEXCEPT;

/* In the child of a fork(2) whose parent had paused the queue: it is served again, and pauses are over. After
 * still_reset_after_fork. */
int still_queue_reset_after_fork(struct still_queue *queue) STILL_NOEXCEPT;

/* How many callbacks were pushed and not begun. */
ssize_t still_queue_pending(const struct still_queue *queue) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Tables
 */

/* A hash table. Each key has a size that is chosen when the table is made; each value is one word. Lookups are lock-free and
 * never wait; writers lock a part of the table. The table grows by itself. It frees its own entries. What a value points to
 * belongs to the program: retire that when a call has handed the value back. Any number of threads. */
struct still_table;

/* A hash of `bytes` bytes at `key`, which may lie at any address: always the same for the same key. It may call nothing of the table. */
typedef uint64_t still_hash_fn(const void *key, size_t bytes, void *context) STILL_NOEXCEPT;

struct still_table_options {
    size_t size;          /* sizeof(struct still_table_options) */
    size_t capacity;      /* entries for which there is room from the beginning; 0: few */
    size_t max_len;       /* 0: no limit */
    still_hash_fn *hash;  /* NULL: a fast one with a random seed; it does not withstand attackers who choose keys and measure times */
    void *context;        /* passed to the hash function */
};

#define STILL_TABLE_OPTIONS_INIT { sizeof(struct still_table_options), 0, 0, NULL, NULL }

/* Makes a table for keys of `key_size` bytes, 65,535 at most. Keys of 4, 8, 16 and 40 bytes lie in the entries, others behind
 * a pointer. `options` may be NULL. errno: EINVAL, EBADF; ENOMEM: there is no memory for the capacity. */
STILL_NODISCARD struct still_table *still_table_new(const struct still_domain *domain, size_t key_size,
                                                    const struct still_table_options *options) STILL_NOEXCEPT;

/* Frees the table and its entries; values are left as they are. No other call may use the table at the same time. */
int still_table_free(struct still_table *table) STILL_NOEXCEPT;

/* Looks a key up: 1 and its value, or 0. `reader` is a struct still_reader or a struct still_qsbr, of this thread and of the
 * table's domain (-EXDEV if of another domain). In a region that began before this call, the program may use what the value
 * points to until the region ends, unless it frees that without retiring it. */
STILL_NODISCARD int still_table_get(const struct still_table *table, const void *reader, const void *key, void **value) STILL_NOEXCEPT;

/* Looks up `count` keys, 64 at most, which lie one after the other: the memory accesses of all lookups overlap. values[i] is
 * written if bit i of `hits` is set. Returns how many keys were found. */
STILL_NODISCARD int still_table_get_many(const struct still_table *table, const void *reader, const void *keys, size_t count,
                                         void **values, uint64_t *hits) STILL_NOEXCEPT;

/* Puts a value under a key: 0 if there was none; 1, and the old value in `old`, if there was one. `old` may be NULL.
 * -ENOSPC: with those that were replaced or removed and wait for readers, there are max_len entries and some; -ENOMEM. */
STILL_NODISCARD int still_table_insert(struct still_table *table, const void *key, void *value, void **old) STILL_NOEXCEPT;

/* Puts a value under a key that has none: 0. If the key has a value: -EEXIST, and that value in `found`, which may be NULL. */
STILL_NODISCARD int still_table_add(struct still_table *table, const void *reader, const void *key, void *value, void **found) STILL_NOEXCEPT;

/* Takes a key out: 1 and its value, or 0. `old` may be NULL. */
int still_table_remove(struct still_table *table, const void *key, void **old) STILL_NOEXCEPT;

/* Takes a key out if its value is `expected`: 1; or 0, and nothing has changed: another thread was faster. For those who free what they
 * have found: each value is taken out by one of them. `reader` as in still_table_get. */
int still_table_remove_if(struct still_table *table, const void *reader, const void *key, const void *expected) STILL_NOEXCEPT;

/* The number of entries. */
ssize_t still_table_len(const struct still_table *table) STILL_NOEXCEPT;

/* `key` may lie at any address. */
typedef int still_entry_fn(const void *key, void *value, void *context) STILL_NOEXCEPT;

/* Calls function(key, value, context) for one entry after the other, until the function returns a number other than 0; returns
 * that number, or 0 at the end. Entries that are there from beginning to end are visited once; those that come or go meanwhile
 * may or may not be. The whole call is one region of `reader`. The function may change the table, read by the same reader, and
 * pin and unpin it; it must not report a quiescent state. */
int still_table_each(const struct still_table *table, const void *reader, still_entry_fn *function, void *context) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Timers
 */

/* A timer, in a struct of the program: 32 bytes, initialised with STILL_TIMER_INIT or with zeros. While it is in a wheel, the
 * program must neither move it nor touch it. */
struct still_timer {
    uint64_t words_[4];
};

#define STILL_TIMER_INIT { { 0, 0, 0, 0 } }

/* A hierarchical timer wheel, for one thread at a time. Times are counted in ticks, whose length the program chooses. The
 * wheel allocates when it is made, and never after that. It calls nothing back: the program pops the timers that are due. */
struct still_wheel;

/* An empty wheel, at the time `now`. errno: ENOMEM. */
STILL_NODISCARD struct still_wheel *still_wheel_new(uint64_t now) STILL_NOEXCEPT;

/* Frees the wheel. Timers that are in it are not touched: set them to zero before they are used again. */
int still_wheel_free(struct still_wheel *wheel) STILL_NOEXCEPT;

/* Adds a timer: constant time. -EEXIST: it is in a wheel already. */
int still_timer_add(struct still_wheel *wheel, struct still_timer *timer, uint64_t deadline) STILL_NOEXCEPT;

/* Takes a timer out, due or not: 1, or 0 if it was in no wheel. Constant time. The timer must be in this wheel or in none,
 * here and in the calls below: otherwise both wheels are damaged. Afterwards its memory is the program's. */
int still_timer_cancel(struct still_wheel *wheel, struct still_timer *timer) STILL_NOEXCEPT;

/* Gives a timer another deadline, or adds it: 1 if it was in the wheel, 0 if not. */
int still_timer_reset(struct still_wheel *wheel, struct still_timer *timer, uint64_t deadline) STILL_NOEXCEPT;

/* 1 while it is in the wheel, 0 if not. */
STILL_NODISCARD int still_timer_is_pending(const struct still_wheel *wheel, const struct still_timer *timer) STILL_NOEXCEPT;

/* Sets the time. A time that is earlier than the last one is ignored. */
int still_wheel_advance(struct still_wheel *wheel, uint64_t now) STILL_NOEXCEPT;

/* Takes a timer that was due at the last advance; one that was added since then, with a deadline in the past, is due at the next. NULL: there is none, and errno is unchanged. Afterwards the
 * timer's memory is the program's. */
STILL_NODISCARD struct still_timer *still_wheel_pop(struct still_wheel *wheel) STILL_NOEXCEPT;

/* Takes any timer, due or not. NULL: the wheel is empty. */
STILL_NODISCARD struct still_timer *still_wheel_take_any(struct still_wheel *wheel) STILL_NOEXCEPT;

/* 1, and a time before which no timer is due; or 0 if there is no timer. Constant time. The earliest deadline is that time or
 * later. */
STILL_NODISCARD int still_wheel_next_deadline(const struct still_wheel *wheel, uint64_t *deadline) STILL_NOEXCEPT;

/* How many timers are in the wheel. */
ssize_t still_wheel_len(const struct still_wheel *wheel) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Pools
 */

/* Objects of one size, in memory that the pool takes when it is made or grows. */
struct still_pool;

enum still_pages {
    STILL_PAGES_BEST = 0,        /* the largest that are available */
    STILL_PAGES_RESERVED = 1,    /* from vm.nr_hugepages; if there are none, making the pool fails */
    STILL_PAGES_TRANSPARENT = 2,
    STILL_PAGES_SMALL = 3,
};

enum still_hardening {
    STILL_HARDENING_NONE = 0,
    STILL_HARDENING_VERIFY = 1, /* double frees are refused, writes after free are found */
    STILL_HARDENING_TRACE = 2,  /* the same, and the pool remembers who has each object */
};

struct still_pool_options {
    size_t size;         /* sizeof(struct still_pool_options) */
    size_t max_objects;  /* the pool grows up to this; 0: it does not grow */
    size_t growth_step;  /* 0: an eighth of what may be added */
    size_t bucket_bytes; /* a power of two; 0: chosen by the size of objects */
    size_t stride;       /* bytes from one object to the next; 0: chosen */
    size_t cache;        /* objects that the cache of each thread holds; 0: an eighth of the capacity, 32 to 512; STILL_ALL: none */
    uint32_t max_locals; /* threads that may use the pool at the same time; 0: 256 */
    uint32_t pages;      /* enum still_pages */
    uint32_t hardening;  /* enum still_hardening */
    uint32_t node;       /* 1 for NUMA node 0, and so on; 0: any */
    void *memory;        /* memory of the program at a multiple of `align`, used until the pool is freed; NULL: the pool's own */
    size_t memory_bytes; /* of it; where these are too few, the error says how many are needed. Not together with max_objects */
};

#define STILL_POOL_OPTIONS_INIT { sizeof(struct still_pool_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0 }

/* Makes a pool of at least `capacity` objects of `bytes` bytes at multiples of `align`. `options` may be NULL. errno: EINVAL,
 * ENOMEM. */
STILL_NODISCARD struct still_pool *still_pool_new(size_t capacity, size_t bytes, size_t align,
                                                  const struct still_pool_options *options) STILL_NOEXCEPT;

/* Frees the pool and its memory. -EBUSY: a thread still has a local of it. Returns how many objects were still out: their
 * memory is gone. */
ssize_t still_pool_free(struct still_pool *pool) STILL_NOEXCEPT;

/* One thread's access to a pool, with a cache. Only for the thread that made it. */
struct still_local;

/* errno: EAGAIN: max_locals threads use the pool already, or the process has used up its keys (pthread_key_create). */
STILL_NODISCARD struct still_local *still_local_new(struct still_pool *pool) STILL_NOEXCEPT;
/* Gives back what the cache holds. -EPERM on another thread. The thread's end does it otherwise. */
int still_local_free(struct still_local *local) STILL_NOEXCEPT;

/* An object, or NULL if there is none (errno ENOMEM). Its bytes are as its last user left them. */
STILL_NODISCARD void *still_get(struct still_local *local) STILL_NOEXCEPT;
/* `count` objects, or none of them: 0, or -ENOMEM. */
STILL_NODISCARD int still_get_many(struct still_local *local, void **objects, size_t count) STILL_NOEXCEPT;
/* Puts back an object that any thread may have got. -EINVAL: its address is outside the pool, or in a hardened pool not that of an
 * object; -EALREADY: it is free already, which only a hardened pool notices. */
int still_put(struct still_local *local, void *object) STILL_NOEXCEPT;
/* Puts objects back. If one is refused, those before it have been put back. */
int still_put_many(struct still_local *local, void *const *objects, size_t count) STILL_NOEXCEPT;

/* Objects that lie one after the other: a whole bucket. */
struct still_block {
    void *start;
    size_t objects;
    size_t stride; /* bytes from one to the next */
};

/* 0, or -ENOMEM if there is no whole bucket. Its objects may be put back one by one. */
STILL_NODISCARD int still_get_block(struct still_local *local, struct still_block *block) STILL_NOEXCEPT;
/* Puts back a block as still_get_block gave it, with all of its objects. If it is refused, nothing was put back. -EINVAL: it is no
 * whole block of the pool; -EALREADY: an object of it is free already, which only a hardened pool notices. */
int still_put_block(struct still_local *local, const struct still_block *block) STILL_NOEXCEPT;

struct still_pool_info {
    size_t size; /* set by the caller: sizeof(struct still_pool_info) */
    size_t capacity;
    size_t available; /* free, caches included */
    size_t in_use;    /* out */
};

/* Looks at every bucket and every cache. */
int still_pool_stats(const struct still_pool *pool, struct still_pool_info *stats) STILL_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
