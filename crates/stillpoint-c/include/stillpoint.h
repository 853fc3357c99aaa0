/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * stillpoint.h: read-copy-update whose memory is freed although readers are preempted; a lock-free hash table, a timer wheel, a pool.
 *
 * A program in one screen: three threads read a configuration, one replaces it.
 *
 *     static struct still_domain *domain;
 *     static struct config *current;                      // what readers find
 *
 *     static void destroy(void *object, void *context) { (void)context; free(object); }
 *
 *     void *read_it(void *unused) {                       // any number of threads
 *         struct still_reader *reader = still_reader_new(domain);
 *         struct still_protected held = still_protect(reader, &current);
 *         use(held.object);                               // it stays until it is released
 *         still_release(held);
 *         still_reader_free(reader);
 *         return NULL;
 *     }
 *
 *     void replace_it(struct still_reclaimer *reclaimer, struct config *new_one) {
 *         struct config *old = still_exchange(&current, new_one);
 *         if (still_retire(reclaimer, old, sizeof *old, destroy, NULL) < 0)
 *             complain(still_error());                    // it is still ours
 *         still_poll(reclaimer, STILL_ALL);               // frees what nobody holds
 *     }
 *
 * WORDS
 *   A domain joins readers and reclaimers. A reader is a thread's right to read; it belongs to the thread that made it.
 *   An object is retired when no link leads to it any more, and destroyed when no reader can hold it.
 *   A region (still_pin, or a reader that is online) holds up everything that is retired after it began.
 *   A protected load (still_protect) holds up one object: a thread that is preempted with it holds up nothing else.
 *
 * ERRORS
 *   Functions that return int, int64_t or ssize_t return 0 or more, or a negative errno. Those that return a pointer return NULL, and set
 *   errno. still_error() has the reason in words. Every function that takes a handle gives
 *     -EINVAL  for NULL, for a handle of another kind, and for options of an unknown size;
 *     -EBADF   for a handle that was freed, until its place is used again;
 *     -EBUSY   for a handle of one thread that is in use further up: a destructor polls the reclaimer that runs it;
 *     -EPERM   for a reader of another thread, where the thread matters;
 *     -ENOTRECOVERABLE for a defect of the library, which has printed it.
 *   The inline functions look at nothing, unless STILL_CHECKED is defined before this header is included: then they abort with a message.
 *
 * THREADS
 *   A domain, a background reclaimer, a queue of callbacks, a table and a pool may be used by any number of threads at a time. A reader and a local are for the thread that
 *   made them; a reclaimer, a hold and a wheel for one thread at a time. To free a handle while another thread uses it is a defect of the program.
 *   No function may be called in a signal handler, but for still_pin and still_unpin, in pairs.
 *   Threads may be cancelled: no call is cut off, a cancellation waits until it has returned.
 *
 * DESTRUCTORS AND CALLBACKS
 *   They are called by whichever thread frees: within still_poll, still_flush, still_retire of a full reclaimer, still_synchronize, still_barrier, or on a
 *   thread of the library. They may call anything here. They must return: no exception, no longjmp, no pthread_exit.
 *
 * ORDERING
 *   What a thread does before it links an object (still_store, still_exchange) happens before what a reader does that finds it.
 *   What readers do with an object happens before its destructor.
 *
 * Times are in nanoseconds. Linux only. C11, or C++17; GCC or Clang.
 */
#ifndef STILLPOINT_H
#define STILLPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* The layout of what inline functions touch. Readers are made with this number; a library with another one refuses them (EPROTO). */
#define STILL_LAYOUT 1u

/* For limits of calls: no limit. */
#define STILL_ALL SIZE_MAX
/* For times: no end. */
#define STILL_FOREVER INT64_C(-1)

#define STILL_NODISCARD __attribute__((__warn_unused_result__))

/* The version of the library, as "0.1.0". */
const char *still_version(void) STILL_NOEXCEPT;

/* Why the last call of this thread that failed did so, in words; "" if none has. It stays as it is until another one fails. Never NULL. */
const char *still_error(void) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Domains
 */

struct still_domain;

/* What readers do for the barriers of writers. */
enum still_mode {
    STILL_MODE_BEST = 0,       /* asymmetric where the kernel has membarrier(2), else symmetric */
    STILL_MODE_SYMMETRIC = 1,  /* readers issue full fences; needs nothing of the kernel */
    STILL_MODE_ASYMMETRIC = 2, /* readers issue none, writers a membarrier(2) now and then */
};

/* What is done about a region reader that holds others up because it waits for a CPU. */
enum still_boost {
    STILL_BOOST_OFF = 0,
    STILL_BOOST_REALTIME = 1, /* its thread is raised to a real-time priority; needs CAP_SYS_NICE or RLIMIT_RTPRIO */
    STILL_BOOST_MIGRATE = 2,  /* its thread is moved to the CPU of who waits */
};

enum still_reader_kind { STILL_KIND_GUARD = 0, STILL_KIND_QSBR = 1 };

/* What a thread is doing, by /proc. */
enum still_activity {
    STILL_ACTIVITY_UNKNOWN = 0,
    STILL_ACTIVITY_RUNNING = 1,  /* on a CPU */
    STILL_ACTIVITY_RUNNABLE = 2, /* waits for one: it was preempted */
    STILL_ACTIVITY_SLEEPING = 3,
    STILL_ACTIVITY_ENDED = 4,    /* the thread is gone, and has left its region open */
};

/* A region reader that is in the way. */
struct still_stall {
    size_t size;       /* set by the caller of still_stall: sizeof(struct still_stall) */
    uint32_t thread;   /* its id, as gettid(2) says; 0 if it is not known */
    uint32_t kind;     /* enum still_reader_kind */
    uint32_t activity; /* enum still_activity */
    uint32_t others;   /* further readers that are in the way */
    int64_t waited;    /* for how long a grace period has waited for it */
    uint64_t objects;  /* that are pending behind it */
    uint64_t bytes;
    char name[16];     /* of the thread, as in /proc; "" if it is not known */
};

/* Called when a reader has been in the way for the threshold: once for each of its sections, by who notices, which may be several threads
 * at a time. `stall` is there for the length of the call. It may use the domain, but not wait for it. */
typedef void still_stall_fn(const struct still_stall *stall, void *context) STILL_NOEXCEPT;

struct still_domain_options {
    size_t size;              /* sizeof(struct still_domain_options) */
    const char *name;         /* for messages; copied; NULL: a number */
    uint32_t mode;            /* enum still_mode */
    uint32_t boost;           /* enum still_boost */
    uint32_t boost_fallback;  /* where this process may not do `boost`; the same as `boost`: making the domain fails then */
    uint32_t reserved;        /* 0 */
    int64_t boost_after;      /* how long a grace period is held up before; 0: 50 us */
    size_t max_pending;       /* objects that may wait in the whole domain; 0: no limit */
    size_t max_pending_bytes; /* 0: no limit */
    int64_t stall_after;      /* threshold for on_stall */
    still_stall_fn *on_stall; /* NULL: nothing is called */
    void *context;            /* handed to it */
};

#define STILL_DOMAIN_OPTIONS_INIT { sizeof(struct still_domain_options), NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL }

/* Makes a domain. `options` may be NULL.
 * errno: EINVAL; EOPNOTSUPP: the kernel has no membarrier(2) for STILL_MODE_ASYMMETRIC; EPERM: this process may not boost threads. */
STILL_NODISCARD struct still_domain *still_domain_new(const struct still_domain_options *options) STILL_NOEXCEPT;

/* The domain that all parts of a process may share, and that Rust code has as its default domain. Another handle with each call. */
STILL_NODISCARD struct still_domain *still_domain_default(void) STILL_NOEXCEPT;

/* Frees the handle. The domain goes with the last handle of it and of its readers, reclaimers, queues and holds; what is pending then is destroyed. */
int still_domain_free(struct still_domain *domain) STILL_NOEXCEPT;

struct still_stats {
    size_t size;            /* set by the caller: sizeof(struct still_stats) */
    uint64_t grace_periods; /* started */
    uint64_t heavy_fences;  /* each interrupts the cores that run the process */
    uint64_t retired;       /* objects and callbacks */
    uint64_t freed;
    uint64_t pending;
    uint64_t pending_bytes;
    uint64_t beyond_limits; /* objects that could not be refused although the domain was full */
    uint64_t handed_back;   /* retirements that were refused for lack of room */
    uint64_t waits;         /* retirements that waited for room */
    uint64_t pinned;        /* pending objects that protected loads held at the last poll */
    int64_t oldest;         /* for how long the oldest grace period with pending objects has gone on; -1 for none */
    uint64_t readers;       /* registered, of both kinds */
    uint64_t holds;         /* protected loads that are bound to no thread */
    uint64_t boosted;       /* how often a reader was boosted */
    uint64_t boost_refused;
    int32_t fence_error;    /* why the last heavy fence failed, a positive errno; 0: it did not. Nothing is freed until one succeeds */
    int32_t reserved;
};

/* Sums over counters of all threads: exact when the domain is quiet, a little old otherwise. Looks at each reclaimer and reader. */
int still_domain_stats(const struct still_domain *domain, struct still_stats *stats) STILL_NOEXCEPT;

/* The region reader that is in the way of the oldest grace period. 1 and `stall`, or 0 if there is none. Looks at each reader, and in /proc. */
int still_domain_stall(const struct still_domain *domain, struct still_stall *stall) STILL_NOEXCEPT;

/* Starts a grace period: it is over when every region reader of now has passed. Never 0; later ones have greater numbers. 0: an error, with errno. */
STILL_NODISCARD uint64_t still_start(const struct still_domain *domain) STILL_NOEXCEPT;

/* 1 if the grace period is over, 0 if not. Never waits. Looks at each reader, unless it is known to be over.
 * -EINVAL also for a number that the domain has not started; or an error of the heavy fence. */
STILL_NODISCARD int still_check(const struct still_domain *domain, uint64_t token) STILL_NOEXCEPT;

/* Waits until the grace period is over, for `timeout` at the longest; STILL_FOREVER: without an end.
 * -ETIMEDOUT: a reader is in the way, of which still_error() tells. -EDEADLK: this thread is in a region of the domain, and would wait for itself. */
STILL_NODISCARD int still_wait(const struct still_domain *domain, uint64_t token, int64_t timeout) STILL_NOEXCEPT;

/* Starts a grace period and waits for it, as still_wait; and destroys what was left to the domain. From any thread, registered or not. A QSBR reader that is online
 * on this thread goes by still_qsbr_synchronize. */
STILL_NODISCARD int still_synchronize(const struct still_domain *domain, int64_t timeout) STILL_NOEXCEPT;

/* Waits until everything that was left to the domain before this call is destroyed. For the end of a program, or before code is unloaded. Errors as
 * still_wait; -EDEADLK also from a destructor, and when a protected load of this thread holds one of the objects. */
STILL_NODISCARD int still_barrier(const struct still_domain *domain, int64_t timeout) STILL_NOEXCEPT;

/* In the child of a fork(2), which has one thread: lets go of what readers of the parent's other threads hold. From now on the child must not use
 * what it was lent through them. Without this call nothing that they held is freed in the child. */
int still_reset_after_fork(const struct still_domain *domain) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Readers
 */

/* The part of a handle that inline functions read. Not for programs: still_reader and still_qsbr are handles like any other. */
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

/* A reader that reports quiescent states: it is in one region after the other, while it is online. */
struct still_qsbr {
    struct still_head_ head_;
};

struct still_reader *still_reader_new_(const struct still_domain *domain, uint32_t layout) STILL_NOEXCEPT;
struct still_qsbr *still_qsbr_new_(const struct still_domain *domain, uint32_t layout) STILL_NOEXCEPT;
void still_answer_(struct still_head_ *head) STILL_NOEXCEPT;
void *still_slot_(struct still_reader *reader) STILL_NOEXCEPT;
void still_slot_release_(void *slot) STILL_NOEXCEPT;

/* Makes the calling thread a reader. Keep it for the life of the thread: a full fence, and an allocation now and then. A thread may have several.
 * errno: EPROTO: the program was compiled against another layout: recompile it. */
STILL_NODISCARD static inline struct still_reader *still_reader_new(const struct still_domain *domain)
{
    return still_reader_new_(domain, STILL_LAYOUT);
}

/* The same, for quiescent states. It is online. */
STILL_NODISCARD static inline struct still_qsbr *still_qsbr_new(const struct still_domain *domain)
{
    return still_qsbr_new_(domain, STILL_LAYOUT);
}

/* Ends a reader, with its pins and protected loads. By its thread, before that ends (-EPERM on another one). */
int still_reader_free(struct still_reader *reader) STILL_NOEXCEPT;
int still_qsbr_free(struct still_qsbr *qsbr) STILL_NOEXCEPT;

/* A pointer type through which pointers of any type may be read. */
typedef void *__attribute__((__may_alias__)) still_any_;

#ifdef STILL_CHECKED
static inline void still_test_(const struct still_head_ *head, uint32_t mark, const char *function)
{
    if (head == NULL || __atomic_load_n(&head->mark, __ATOMIC_ACQUIRE) != mark) {
        fprintf(stderr, "%s: not a reader of this kind, or one that was freed\n", function);
        abort();
    }
}
#define STILL_TEST_(head, mark) still_test_((head), (mark), __func__)
#else
#define STILL_TEST_(head, mark) ((void)0)
#endif

static inline uint64_t *still_state_(const struct still_head_ *head)
{
    return (uint64_t *)(void *)((char *)head->record + STILL_STATE_);
}

/* The state was changed: whoever waits for that is told. */
static inline void still_tell_(struct still_head_ *head)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(
            __atomic_load_n((uint32_t *)(void *)((char *)head->record + STILL_ATTENTION_), __ATOMIC_RELAXED) != 0, 0))
        still_answer_(head);
}

/* The reader's side of the pair that orders a store before later loads; the writer's is the heavy fence. */
static inline void still_fence_(const struct still_head_ *head)
{
    if (__builtin_expect(head->flags & STILL_FULL_FENCE_, 0u))
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    else
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Reports a quiescent state: this thread holds nothing any more that it has loaded. Two loads and a compare; a store when a grace period has begun
 * since the last one. A reader that is offline comes online by it; use still_online, which is ordered. */
static inline void still_quiescent(struct still_qsbr *qsbr)
{
    struct still_head_ *head = &qsbr->head_;
    STILL_TEST_(head, STILL_MARK_QSBR_);
    /* Acquire: pairs with the read-modify-write of start. */
    uint64_t token = __atomic_load_n(head->token, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(still_state_(head), __ATOMIC_RELAXED) != token)
        /* Release: pairs with the acquire load of check. */
        __atomic_store_n(still_state_(head), token, __ATOMIC_RELEASE);
    still_tell_(head);
}

/* Takes a QSBR reader offline before its thread blocks: nobody waits for it, and it holds nothing. Again: harmless. -EPERM on another thread. */
int still_offline(struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* Brings it back; a full fence. Again: harmless. */
int still_online(struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* 1 if it is online, 0 if not. */
STILL_NODISCARD int still_is_online(const struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* As still_synchronize, for a thread with this reader online: it is offline meanwhile. */
STILL_NODISCARD int still_qsbr_synchronize(struct still_qsbr *qsbr, int64_t timeout) STILL_NOEXCEPT;

/* Begins a region: what this thread loads from now on stays until the matching still_unpin. Nests. */
static inline void still_pin(struct still_reader *reader)
{
    struct still_head_ *head = &reader->head_;
    STILL_TEST_(head, STILL_MARK_READER_);
    if (__atomic_load_n(still_state_(head), __ATOMIC_RELAXED) == 0) {
        /* Acquire: pairs with the read-modify-write of start. */
        uint64_t token = __atomic_load_n(head->token, __ATOMIC_ACQUIRE);
        /* Release: pairs with the acquire load of check; before what is loaded in the region, by the fence. */
        __atomic_store_n(still_state_(head), token, __ATOMIC_RELEASE);
        still_fence_(head);
    } else {
        head->nested++;
    }
}

/* Ends it. */
static inline void still_unpin(struct still_reader *reader)
{
    struct still_head_ *head = &reader->head_;
    STILL_TEST_(head, STILL_MARK_READER_);
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

/* Loads the pointer at `link` (of type T **), in a region: under still_pin, or by a QSBR reader that is online. */
STILL_NODISCARD static inline void *still_load(const void *link)
{
    /* Acquire: pairs with still_store and still_exchange. */
    return __atomic_load_n((still_any_ const *)link, __ATOMIC_ACQUIRE);
}

/* Stores a pointer at `link`, which was not shared yet, or held nothing that must be retired. */
static inline void still_store(void *link, const void *object)
{
    /* Release: pairs with still_load and still_protect. */
    __atomic_store_n((still_any_ *)link, (void *)(uintptr_t)object, __ATOMIC_RELEASE);
}

/* Exchanges the pointer at `link`, and returns what was there: to be retired if nothing else leads to it. */
STILL_NODISCARD static inline void *still_exchange(void *link, const void *object)
{
    return __atomic_exchange_n((still_any_ *)link, (void *)(uintptr_t)object, __ATOMIC_ACQ_REL);
}

/* An object that is held, and where that is noted. */
struct still_protected {
    void *object; /* NULL: there was none, and nothing is to be released */
    void *slot_;
};

/* Lets go of a protected object, on the reader's thread. NULL is nothing. */
static inline void still_release(struct still_protected held)
{
    /* A reader's first slot is told by its address, which is no multiple of 16. */
    if (__builtin_expect(((uintptr_t)held.slot_ & 8u) != 0, 1)) {
        /* Release: pairs with the acquire load of a scan: what was done with the object comes before its free. */
        __atomic_store_n((void **)held.slot_, NULL, __ATOMIC_RELEASE);
    } else {
        still_slot_release_(held.slot_);
    }
}

/* Loads the pointer at `link` (of type T **) and holds the object until it is released, or the reader is freed. What it points to
 * must be alive as long as it is linked there, and be retired by this very address, in the domain of the reader. Begins again while `link` changes. */
STILL_NODISCARD static inline struct still_protected still_protect(struct still_reader *reader, const void *link)
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
        /* Release, and the fence: pairs with the acquire load of a scan after a heavy fence: either the scan sees it, or the next load sees the unlink. */
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

/* A protected load that is bound to no thread: it may be released by another one. For one thread at a time. */
struct still_hold;
/* errno: EINVAL, EBADF. */
STILL_NODISCARD struct still_hold *still_hold_new(const struct still_domain *domain) STILL_NOEXCEPT;
/* As still_protect; what was held before is let go. NULL: there is no object; or the handle is none, with errno. */
STILL_NODISCARD void *still_hold_protect(struct still_hold *hold, const void *link) STILL_NOEXCEPT;
/* Lets go of what it holds. */
int still_hold_release(struct still_hold *hold) STILL_NOEXCEPT;
int still_hold_free(struct still_hold *hold) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Writers
 */

/* Ends an object: called once, when no reader can hold it. */
typedef void still_destroy_fn(void *object, void *context) STILL_NOEXCEPT;

/* What a retirement does that finds no room. */
enum still_when_full {
    STILL_FULL_HAND_BACK = 0, /* it fails, and the object stays the caller's */
    STILL_FULL_RECLAIM = 1,   /* background only: the caller frees a share of what others have submitted, then it fails */
    STILL_FULL_WAIT = 2,      /* it waits for full_wait, then it fails */
};

struct still_reclaimer_options {
    size_t size;              /* sizeof(struct still_reclaimer_options) */
    size_t max_pending;       /* objects that may wait; 0: 65,536, of a background reclaimer 1,048,576 */
    size_t max_pending_bytes; /* 0: no limit */
    size_t batch;             /* objects for which a grace period starts at once; 0: 128 */
    int64_t fence_interval;   /* between grace periods for less than a batch; 0: 50 us; STILL_FOREVER: only full batches; 1 is the shortest */
    uint32_t when_full;       /* enum still_when_full */
    uint32_t reserved;        /* 0 */
    int64_t full_wait;        /* for STILL_FULL_WAIT */
};

#define STILL_RECLAIMER_OPTIONS_INIT { sizeof(struct still_reclaimer_options), 0, 0, 0, 0, 0, 0, 0 }

/* A queue of retired objects that its owner polls: no thread is needed. For one thread at a time. */
struct still_reclaimer;

/* `options` may be NULL. errno: EINVAL, EBADF. */
STILL_NODISCARD struct still_reclaimer *
still_reclaimer_new(const struct still_domain *domain, const struct still_reclaimer_options *options) STILL_NOEXCEPT;

/* Frees the queue. What is pending passes to the domain, whose other reclaimers free it. */
int still_reclaimer_free(struct still_reclaimer *reclaimer) STILL_NOEXCEPT;

/* Takes in an object that no link leads to any more: destroy(object, context) is called when no reader can hold it. `object` is the address that readers protect, not
 * that of a member; `bytes` its size, for limits and statistics. Constant time, amortised.
 * -ENOSPC: the reclaimer is full of what readers hold up; -EDQUOT: the domain is; the object is the caller's then. Called by a destructor that this reclaimer runs,
 * it leaves the object to the domain. */
STILL_NODISCARD int still_retire(struct still_reclaimer *reclaimer, void *object, size_t bytes, still_destroy_fn *destroy,
                                 void *context) STILL_NOEXCEPT;

/* Frees what is ready, looks at `limit` objects at the most, and returns how many it has freed. Never waits for a reader. */
ssize_t still_poll(struct still_reclaimer *reclaimer, size_t limit) STILL_NOEXCEPT;

/* Waits until everything that was retired here is freed, for `timeout` at the longest. Errors as still_wait; -EDEADLK also when a protected load of this thread
 * holds one of the objects, -ETIMEDOUT when others do. */
STILL_NODISCARD int still_flush(struct still_reclaimer *reclaimer, int64_t timeout) STILL_NOEXCEPT;

/* Objects that wait here. */
ssize_t still_pending(const struct still_reclaimer *reclaimer) STILL_NOEXCEPT;

/* Retires without a reclaimer: the object is left to the domain, which frees it in polls of its reclaimers, in still_synchronize or in still_barrier; nobody frees it
 * where nobody does any of that. It cannot be refused: see still_stats.beyond_limits. From any thread. */
int still_leave(const struct still_domain *domain, void *object, size_t bytes, still_destroy_fn *destroy, void *context) STILL_NOEXCEPT;

/* A reclaimer with a thread of its own, to which any thread submits. All signals are blocked on that thread. */
struct still_background;

/* Makes it, and starts its thread. errno: EINVAL, EBADF; EAGAIN: the thread could not be started. */
STILL_NODISCARD struct still_background *
still_background_new(const struct still_domain *domain, const struct still_reclaimer_options *options) STILL_NOEXCEPT;

/* As still_retire, from any thread. Also -EPIPE: it was stopped. */
STILL_NODISCARD int still_submit(struct still_background *background, void *object, size_t bytes, still_destroy_fn *destroy,
                                 void *context) STILL_NOEXCEPT;

/* Objects that were submitted and are not freed. */
ssize_t still_background_pending(const struct still_background *background) STILL_NOEXCEPT;

/* Stops it: frees everything that was submitted, waits for the thread's end, and frees the handle. What readers still hold after `timeout` passes to the domain,
 * whose other reclaimers free it. Returns how many objects these were. -EDEADLK: from a destructor that it runs, or in a region of this thread; the handle stays. */
ssize_t still_background_free(struct still_background *background, int64_t timeout) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Callbacks in the program's own objects: no allocation, never full
 */

/* Two words, anywhere in an object. They are the queue's from still_call until the callback begins. */
struct still_callback {
    void *words_[2];
};

/* Three words, for objects that protected loads may hold. The first two are a struct still_callback. */
struct still_object_callback {
    struct still_callback callback;
    void *word_;
};

typedef void still_callback_fn(struct still_callback *callback) STILL_NOEXCEPT;

/* A queue of callbacks. Any thread pushes; it is served by whoever calls still_queue_run, still_queue_poll or still_queue_barrier, one at a time. */
struct still_queue;

/* errno: EINVAL, EBADF. */
STILL_NODISCARD struct still_queue *still_queue_new(const struct still_domain *domain) STILL_NOEXCEPT;

/* Frees the handle. What waits passes to the domain, whose reclaimers call it; this allocates. -EBUSY from a callback of the queue. */
int still_queue_free(struct still_queue *queue) STILL_NOEXCEPT;

/* Calls function(callback) after a grace period, in the order of the calls. It waits for regions, not for protected loads. Wait-free: an exchange and a store, and a
 * system call if a thread that serves the queue sleeps for lack of work. */
int still_call(struct still_queue *queue, struct still_callback *callback, still_callback_fn *function) STILL_NOEXCEPT;

/* The same for an object that protected loads may hold; `object` is the address that they protect. Without an order. */
int still_call_object(struct still_queue *queue, struct still_object_callback *callback, void *object,
                      still_callback_fn *function) STILL_NOEXCEPT;

/* Calls what is past its grace period, `limit` callbacks at the most, and returns how many. Never waits. 0 also while another thread serves the queue. */
ssize_t still_queue_poll(struct still_queue *queue, size_t limit) STILL_NOEXCEPT;

/* Serves the queue on this thread until still_queue_stop, and sleeps while there is nothing to do. -EDEADLK: in a region of this thread. */
int still_queue_run(struct still_queue *queue) STILL_NOEXCEPT;

/* Lets still_queue_run return when everything was called; for good. */
int still_queue_stop(struct still_queue *queue) STILL_NOEXCEPT;

/* Waits until everything that was pushed before this call was called. Serves the queue itself where no thread does. -EDEADLK from a callback of the queue, or in a
 * region of this thread. */
STILL_NODISCARD int still_queue_barrier(struct still_queue *queue) STILL_NOEXCEPT;

/* Waits for the callback that is being called; from then on none is, until still_queue_resume. Pauses nest. -EDEADLK from a callback of the queue. */
STILL_NODISCARD int still_queue_pause(struct still_queue *queue) STILL_NOEXCEPT;
/* -EINVAL: it is not paused. */
int still_queue_resume(struct still_queue *queue) STILL_NOEXCEPT;

/* In the child of a fork(2) whose parent had paused the queue: it is served again, and pauses are over. After still_reset_after_fork. */
int still_queue_reset_after_fork(struct still_queue *queue) STILL_NOEXCEPT;

/* Callbacks that were pushed and not called. */
ssize_t still_queue_pending(const struct still_queue *queue) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Tables
 */

/* A hash table from keys of a size that is chosen when it is made to one word each. Lookups are lock-free and never wait; writers lock a part of the table. It grows by
 * itself. Entries are the table's; what a value points to is the program's: retire it when a call has handed it back. Any number of threads. */
struct still_table;

/* A hash of `bytes` bytes at `key`. */
typedef uint64_t still_hash_fn(const void *key, size_t bytes, void *context) STILL_NOEXCEPT;

struct still_table_options {
    size_t size;          /* sizeof(struct still_table_options) */
    size_t capacity;      /* entries for which there is room from the beginning; 0: few */
    size_t max_len;       /* 0: no limit */
    still_hash_fn *hash;  /* NULL: a fast one with a random seed, which is not made against attackers who choose keys and measure times */
    void *context;        /* handed to it */
};

#define STILL_TABLE_OPTIONS_INIT { sizeof(struct still_table_options), 0, 0, NULL, NULL }

/* Makes a table for keys of `key_size` bytes, 65,535 at the most. Those of 4, 8, 16 and 40 bytes lie in the entries, others behind a pointer. `options` may be NULL.
 * errno: EINVAL, EBADF; ENOMEM: there is no memory for the capacity. */
STILL_NODISCARD struct still_table *still_table_new(const struct still_domain *domain, size_t key_size,
                                                    const struct still_table_options *options) STILL_NOEXCEPT;

/* Frees the table and its entries; values are left as they are. No other call uses the table. */
int still_table_free(struct still_table *table) STILL_NOEXCEPT;

/* Looks a key up: 1 and its value, or 0. `reader` is a struct still_reader or a struct still_qsbr of this thread and of the table's domain (-EXDEV). What the value points to may be used
 * in a region that began before this call, unless the program frees it without retiring it. */
STILL_NODISCARD int still_table_get(const struct still_table *table, const void *reader, const void *key, void **value) STILL_NOEXCEPT;

/* Looks up `count` keys, 64 at the most, which lie one behind the other: the memory accesses of all of them overlap. values[i] is written where bit i of `hits` is set.
 * Returns how many were found. */
STILL_NODISCARD int still_table_get_many(const struct still_table *table, const void *reader, const void *keys, size_t count,
                                         void **values, uint64_t *hits) STILL_NOEXCEPT;

/* Puts a value under a key: 0 where there was none, 1 and the old value in `old` where there was one. `old` may be NULL.
 * -ENOSPC: there are max_len entries; -ENOMEM. */
STILL_NODISCARD int still_table_insert(struct still_table *table, const void *key, void *value, void **old) STILL_NOEXCEPT;

/* The same where there is none: 0. -EEXIST, and the value that is there in `found`, which may be NULL. */
STILL_NODISCARD int still_table_add(struct still_table *table, const void *reader, const void *key, void *value, void **found) STILL_NOEXCEPT;

/* Takes a key out: 1 and its value, or 0. `old` may be NULL. */
int still_table_remove(struct still_table *table, const void *key, void **old) STILL_NOEXCEPT;

/* The number of entries. */
ssize_t still_table_len(const struct still_table *table) STILL_NOEXCEPT;

typedef int still_entry_fn(const void *key, void *value, void *context) STILL_NOEXCEPT;

/* Calls function(key, value, context) for entries until it returns another number than 0, which is returned; 0 in the end. Entries that are there from beginning to end are
 * visited once; those that come or go meanwhile perhaps. One region of `reader`, as long as it takes. The function may change the table. */
int still_table_each(const struct still_table *table, const void *reader, still_entry_fn *function, void *context) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Timers
 */

/* A timer, in a struct of the program: 32 bytes, set by STILL_TIMER_INIT or to zero. In a wheel it must stay where it is, and only the wheel may use it. */
struct still_timer {
    uint64_t words_[4];
};

#define STILL_TIMER_INIT { { 0, 0, 0, 0 } }

/* A hierarchical timer wheel, for one thread at a time. Times are numbers of ticks of any length. It allocates when it is made, and never after that. Nothing calls back. */
struct still_wheel;

/* An empty wheel, at the time `now`. errno: ENOMEM. */
STILL_NODISCARD struct still_wheel *still_wheel_new(uint64_t now) STILL_NOEXCEPT;

/* Frees the wheel. Timers that are in it are not touched: set them to zero before they are used again. */
int still_wheel_free(struct still_wheel *wheel) STILL_NOEXCEPT;

/* Adds a timer: constant time. -EEXIST: it is in a wheel already. */
int still_timer_add(struct still_wheel *wheel, struct still_timer *timer, uint64_t deadline) STILL_NOEXCEPT;

/* Takes a timer out, due or not: 1, or 0 if it was in no wheel. Constant time. The timer is in this wheel or in none; from then on its memory is the program's. */
int still_timer_cancel(struct still_wheel *wheel, struct still_timer *timer) STILL_NOEXCEPT;

/* Gives a timer another deadline, or adds it: 1 if it was in the wheel, 0 if not. */
int still_timer_reset(struct still_wheel *wheel, struct still_timer *timer, uint64_t deadline) STILL_NOEXCEPT;

/* 1 while it is in the wheel, 0 if not. */
STILL_NODISCARD int still_timer_is_pending(const struct still_wheel *wheel, const struct still_timer *timer) STILL_NOEXCEPT;

/* Sets the time, which goes forward only. */
int still_wheel_advance(struct still_wheel *wheel, uint64_t now) STILL_NOEXCEPT;

/* Takes a timer that is due at the time of the last advance; NULL: there is none, and errno is left alone. From then on its memory is the program's. */
STILL_NODISCARD struct still_timer *still_wheel_pop(struct still_wheel *wheel) STILL_NOEXCEPT;

/* Takes any timer, due or not. NULL: the wheel is empty. */
STILL_NODISCARD struct still_timer *still_wheel_take_any(struct still_wheel *wheel) STILL_NOEXCEPT;

/* 1 and a time before which no timer is due, or 0 if there is none. Constant time; the earliest deadline itself is this or later. */
STILL_NODISCARD int still_wheel_next_deadline(const struct still_wheel *wheel, uint64_t *deadline) STILL_NOEXCEPT;

/* Timers in the wheel. */
ssize_t still_wheel_len(const struct still_wheel *wheel) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Pools
 */

/* Objects of one size, in memory that the pool has taken before. */
struct still_pool;

enum still_pages {
    STILL_PAGES_BEST = 0,        /* the largest that are there */
    STILL_PAGES_RESERVED = 1,    /* of vm.nr_hugepages, or making the pool fails */
    STILL_PAGES_TRANSPARENT = 2,
    STILL_PAGES_SMALL = 3,
};

enum still_hardening {
    STILL_HARDENING_NONE = 0,
    STILL_HARDENING_VERIFY = 1, /* double frees are refused, writes after free are found */
    STILL_HARDENING_TRACE = 2,  /* and who has each object is remembered */
};

struct still_pool_options {
    size_t size;         /* sizeof(struct still_pool_options) */
    size_t max_objects;  /* that it may grow to; 0: it does not grow */
    size_t growth_step;  /* 0: an eighth of what may be added */
    size_t bucket_bytes; /* a power of two; 0: chosen by the size of objects */
    size_t stride;       /* bytes from one object to the next; 0: chosen */
    size_t cache;        /* objects that the cache of each thread holds; 0: an eighth of the capacity, 32 to 512; STILL_ALL: none */
    uint32_t max_locals; /* threads that may use the pool at a time; 0: 256 */
    uint32_t pages;      /* enum still_pages */
    uint32_t hardening;  /* enum still_hardening */
    int32_t node;        /* NUMA node; -1: any */
    void *memory;        /* memory of the program, used until the pool is freed; NULL: the pool's own */
    size_t memory_bytes;
};

#define STILL_POOL_OPTIONS_INIT { sizeof(struct still_pool_options), 0, 0, 0, 0, 0, 0, 0, 0, -1, NULL, 0 }

/* Makes a pool of at least `capacity` objects of `bytes` bytes at multiples of `align`. `options` may be NULL. errno: EINVAL, ENOMEM. */
STILL_NODISCARD struct still_pool *still_pool_new(size_t capacity, size_t bytes, size_t align,
                                                  const struct still_pool_options *options) STILL_NOEXCEPT;

/* Frees the pool and its memory, when no thread has a local of it (-EBUSY). Returns how many objects were still out: their memory is gone. */
ssize_t still_pool_free(struct still_pool *pool) STILL_NOEXCEPT;

/* One thread's access to a pool, with a cache. For the thread that made it. */
struct still_local;

/* errno: EAGAIN: as many threads use the pool as it allows. */
STILL_NODISCARD struct still_local *still_local_new(struct still_pool *pool) STILL_NOEXCEPT;
/* Gives back what the cache holds. -EPERM on another thread. */
int still_local_free(struct still_local *local) STILL_NOEXCEPT;

/* An object, or NULL where there is none (errno ENOMEM). Its bytes are what they were. */
STILL_NODISCARD void *still_get(struct still_local *local) STILL_NOEXCEPT;
/* `count` objects, or none of them: 0, or -ENOMEM. */
STILL_NODISCARD int still_get_many(struct still_local *local, void **objects, size_t count) STILL_NOEXCEPT;
/* Puts an object back, which any thread may have got. -EINVAL: it is none of the pool's; -EALREADY: it is free already, which a hardened pool notices. */
int still_put(struct still_local *local, void *object) STILL_NOEXCEPT;
/* Puts objects back. Where one is refused, those before it are back. */
int still_put_many(struct still_local *local, void *const *objects, size_t count) STILL_NOEXCEPT;

/* Objects that lie one behind the other: a whole bucket. */
struct still_block {
    void *start;
    size_t objects;
    size_t stride; /* bytes from one to the next */
};

/* 0, or -ENOMEM where there is no whole bucket. Its objects may be put back one by one. */
STILL_NODISCARD int still_get_block(struct still_local *local, struct still_block *block) STILL_NOEXCEPT;
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
