/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * stillpoint.h: read-copy-update that frees memory even while readers are preempted; a lock-free hash table; a timer wheel; a pool.
 *
 * A program in one screen: threads read a configuration, and one thread replaces it. In C++, see examples/configuration.cc.
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
 *   Functions that return int or ssize_t return 0 or more, or a negative errno (<errno.h>). Functions that return a pointer return NULL
 *   on failure, and set errno. still_error() gives the reason in words. Every function that takes a handle returns
 *     -EINVAL  for NULL, for a handle of another kind, and for a struct whose size is not set;
 *     -EBADF   for a handle that was freed; later the same address may be a new handle, and the mistake goes unnoticed. Also for
 *              a handle of another copy of the library: see PLUGINS;
 *     -EBUSY   for a one-thread handle that a function further up the stack is using, for example when a destructor polls the
 *              reclaimer that runs it;
 *     -EPERM   for a reader of another thread, where the thread matters;
 *     -EINVAL  for a time that is negative and not STILL_FOREVER;
 *     -ENOMEM  if there is no memory, in the functions that MEMORY names;
 *     -EOPNOTSUPP if the kernel refuses the fence of the domain, although it had offered membarrier(2), as after the program has
 *              installed a seccomp filter. The call returns at once, also with STILL_FOREVER, and the grace period is NOT over:
 *              nothing that waits for it may be freed. Only calls that ask for the end of a grace period return this: still_check,
 *              still_wait, still_synchronize, still_barrier, still_qsbr_synchronize, still_flush and still_queue_barrier. It may
 *              succeed later, or from a thread without that filter. Threads of the library, still_background_free and
 *              still_queue_run try again until it does;
 *     -ENOTRECOVERABLE for a defect of the library, which has printed a message. It is then unknown whether an object that was
 *              passed still belongs to the caller.
 *   The inline functions check nothing, unless STILL_CHECKED is defined before this header is included. Then they abort with a
 *   message on a wrong handle, a handle of another thread (except in still_release), an unpin without a pin, a second release, and
 *   a report by a reader that is offline or that a call further up the stack is using.
 *   With STILL_CHECKED, still_retire, still_domain_retire, still_submit, still_call and still_call_object also return
 *     -EALREADY for an object or a callback that was given to any of these calls before, and waits to be destroyed or called. Nothing
 *              has changed: it is destroyed or called once. Without STILL_CHECKED, it would be destroyed twice, or the queue damaged.
 *   Addresses are compared. Both calls must be in files that define STILL_CHECKED, and in one copy of the library. The calls then
 *   take a lock, and allocate: 40 bytes until the object is destroyed, and 512 KiB once. Without that memory they succeed
 *   nevertheless, and do not find that the object is given again.
 *   With STILL_CHECKED, still_call also returns
 *     -EINVAL  if a reader of the calling thread protects an object at the address of the callback: an object that begins with its
 *              callback, and that still_protect or still_table_protect has found. Use still_call_object. The check does not see
 *              what other threads protect, nor a callback further on in the object.
 *
 * THREADS
 *   A domain, a background reclaimer, a queue of callbacks, a table and a pool may be used by any number of threads at once.
 *   A reader and a local are for the thread that made them: [owner] marks the calls that only this thread may make. A reclaimer, a hold
 *   and a wheel are for one thread at a time. Freeing a handle while another thread uses it is an error of the program, which is not
 *   detected.
 *   A signal handler may call still_pin and still_unpin, in pairs, still_load and still_is_pinned, and no other function. If futures
 *   of Rust code await grace periods of the domain, still_unpin may wake them. Use no such futures there, unless their executor can be
 *   woken from a handler.
 *   Threads may be cancelled if their cancellation is deferred: a cancellation that arrives during a call takes effect after the
 *   call. A thread that may be cancelled asynchronously must call no function of this header.
 *   If a thread has not freed a reader or a local, the end of the thread frees it, with everything that it holds. This includes threads
 *   that are cancelled. It happens in the third round of key destructors (pthread_key_create). C++ destructors, and the program's key
 *   destructors in the first two rounds, may still use the handle. A thread that makes its first reader or local in a key
 *   destructor must free it there. If the main thread returns from main, the process ends, and no key destructors run.
 *
 * FORK
 *   The parent must pause its queues before it forks, and must fork while no other thread changes a table, is in still_queue_barrier,
 *   starts, pauses or resumes a queue, or is in a call on a pool: the child would wait for that thread's locks for ever, or get an object
 *   twice.
 *   The child has one thread. It must call still_reset_after_fork before it waits or frees. In the child, a background reclaimer has no
 *   thread, and refuses objects; still_queue_start gives a queue another thread. In the child, locals of the parent's other threads keep
 *   their objects, and count towards max_locals. A pool in reserved huge pages (STILL_PAGES_BEST takes them) may end the child by
 *   SIGBUS: the pages are reserved only for the parent, and a write by either process needs a free huge page for the copy. Use
 *   STILL_PAGES_TRANSPARENT, or make the pool in the child.
 *
 * MEMORY
 *   If there is no memory, a call that makes a handle returns NULL, with errno ENOMEM, and nothing has changed. still_retire,
 *   still_submit, still_domain_retire, still_queue_pause and insertions return -ENOMEM: an object or a value stays the caller's. No
 *   call needs memory to fail: without it, still_error() has the text of the reason, with {} in place of its numbers and names. Pools
 *   return -ENOMEM when they cannot grow. Other calls on pools and wheels, still_call without STILL_CHECKED and lookups allocate
 *   nothing, except for objects that are protected beyond the first.
 *   What cannot be refused, such as a further protected load while one is held, or the list of a barrier, gets memory from a reserve:
 *   512 pieces of 64 bytes and 256 of 1 KiB, which lie side by side for requests of up to 64 pieces. The process ends only if the
 *   reserve has no room for such a request. These requests may be too large for it: those of still_reclaimer_free, and of
 *   still_background_free with a timeout, while several hundred objects are pending (poll or flush first); of still_queue_free, with as
 *   many callbacks (call still_queue_barrier first); of still_local_put_block in a hardened pool with large buckets; and of polls and
 *   barriers that take over objects that were left to the domain into a list of more than a thousand. What the library keeps for a
 *   thread, some 500 bytes from its first call on, comes from the reserve, too.
 *
 * STRUCTS THAT GROW
 *   Structs that begin with `size` may get more fields in later versions. If the program's struct is shorter than the library's,
 *   the missing options are 0, and the library writes only the fields that fit. If it is longer, the library returns -EINVAL unless
 *   the options that it does not know are 0, and sets the fields that it does not know to 0 when it writes.
 *
 * WHO FREES
 *   What waits is on a shelf of its domain: what was left to the domain, and what was removed from tables. Whoever writes to a table,
 *   polls, or waits in still_barrier, and a background reclaimer's thread, serves it. What is given to a reclaimer or to a queue, only that
 *   one frees. If no thread does any of this, nothing is freed.
 *
 * DESTRUCTORS AND CALLBACKS
 *   The thread that frees calls them: within still_poll, still_flush, still_synchronize, still_barrier; within writes and polls of a
 *   table, also for other objects of the domain; within still_queue_poll, still_queue_run and still_queue_barrier; within
 *   still_retire and still_submit with STILL_FULL_RECLAIM; when a domain's last handle goes, also at the end of a thread; or on a thread
 *   of the library. Make these calls without locks that destructors or callbacks take. They may call any function of this header; but
 *   those that may wait return -EDEADLK (still_wait says why). They must return: no exception, no longjmp, no pthread_exit.
 *
 * PLUGINS
 *   The library may be loaded by dlopen, alone or with a plugin. It takes 120 bytes of the memory that glibc keeps for the
 *   thread-local variables of such libraries (static TLS); a plugin with the static library takes some 260.
 *   The library must stay loaded after dlclose, since it runs code when a thread ends. The shared library does. A plugin with the
 *   static library must be linked with -Wl,-z,nodelete; with -Wl,--exclude-libs,ALL its copy is for itself, even if the program
 *   exports another copy (-rdynamic).
 *   Link all parts of a process with the shared library. Then they have one copy of it. If the static library is in the program
 *   and in a plugin, or in two plugins, each has a copy of its own, and readers of one copy do not delay the writers of another.
 *   So only one copy has the default domain (still_domain_default), the first that asks for it; another one gets EEXIST, with the
 *   names of both files in still_error(). For the domains behind the C++ headers and of liburcu's flavours, whose functions return
 *   no errors, the second copy calls the hook of still_on_report, and goes on with its own domain. Domains that a program makes,
 *   and everything in them, work in each copy; a handle of one copy is refused by the others. Inline functions refuse it only with
 *   STILL_CHECKED: otherwise code of another copy that uses a reader may run outside any region.
 *   A namespace of dlmopen is apart: copies in different namespaces do not see each other, and each may have a default domain.
 *
 * ORDERING
 *   What a thread does before it links an object (still_store, still_exchange) happens before what a reader that finds the object
 *   does with it. What readers do with an object happens before its destructor runs. Operations on one key of a table take effect at
 *   one instant each, in the order of happens-before: of two threads that each insert a key and look for the other's, both may fail,
 *   unless each puts a seq_cst fence in between.
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

/* In C++, a function that a program passes to this library must be noexcept. This is part of its type, and the compiler refuses other
 * functions. Code that is compiled as C and as C++ writes STILL_NOEXCEPT after the parameters; in C it expands to nothing. */
#ifdef __cplusplus
extern "C" {
#define STILL_NOEXCEPT noexcept
#else
#define STILL_NOEXCEPT
#endif

#define STILL_VERSION_MAJOR 0
#define STILL_VERSION_MINOR 1
#define STILL_VERSION_PATCH 0

/* The version of the layout that the inline functions rely on. A program passes it when it makes a reader. A library with another
 * layout refuses to make one (EPROTO). */
#define STILL_LAYOUT 2u

/* As the limit of a call: no limit. */
#define STILL_ALL SIZE_MAX
/* As a time: no end. */
#define STILL_FOREVER INT64_C(-1)

#define STILL_NODISCARD __attribute__((__warn_unused_result__))

/* ------------------------------------------------------------------------------------------------------------------
 * Errors: their reasons, and the version of the library
 */

/* The version of the library, as "0.1.0". */
const char *still_version(void) STILL_NOEXCEPT;

/* Why this thread's last failed call failed, in words; "" if no call has failed. The text stays until another call of this
 * thread fails, or the thread ends. Never NULL. */
const char *still_error(void) STILL_NOEXCEPT;

/* Called with a line of text when a call cannot return an error: a function of a drop-in that returns nothing was misused, or a wait
 * will never end. The thread that made the call calls the hook; several threads may do so at the same time. `report` is valid until
 * the hook returns. Without a hook, still_error() returns the text on that thread. The hook may call any function of this header;
 * reports that these calls cause do not call the hook again. It must return. */
typedef void still_report_fn(const char *report, void *context) STILL_NOEXCEPT;

/* Sets the hook. It is called for each later report of this process, with the report and `context`. NULL: no hook. From any thread. The
 * previous hook may still be running on other threads, or about to run: keep its context valid for ever. Each call allocates 24 bytes
 * that are never freed. */
void still_on_report(still_report_fn *hook, void *context) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Domains: what readers and writers share, and grace periods
 */

struct still_domain;

/* Which side pays for the order between readers and writers. */
enum still_mode {
    STILL_MODE_BEST = 0,       /* asymmetric where the kernel has membarrier(2), else symmetric */
    STILL_MODE_SYMMETRIC = 1,  /* readers issue full fences; the kernel needs no membarrier(2) */
    STILL_MODE_ASYMMETRIC = 2, /* readers issue no fences; writers call membarrier(2) */
};

/* What the domain does about a reader whose region holds up a grace period while its thread waits for a CPU. */
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

/* A reader whose region holds up a grace period. In a call of on_stall, also a thread to which the kernel refuses the domain's fence,
 * without which nothing is freed. From still_domain_silent, a reader that holds nothing up, and needs heavy fences; `waited`, `others`,
 * `objects` and `bytes` are 0 then. */
struct still_stall {
    size_t size;       /* set by the caller of still_domain_stall: sizeof(struct still_stall) */
    uint32_t thread;   /* the thread's id, as gettid(2) returns it; 0 if it is not known */
    uint32_t kind;     /* enum still_reader_kind */
    uint32_t activity; /* enum still_activity */
    uint32_t others;   /* how many other readers block the same grace period */
    int64_t waited;    /* how long a grace period has waited for this reader; or how long every fence has been refused */
    uint64_t objects;  /* how many objects are pending because of this reader */
    uint64_t bytes;    /* the bytes of these objects */
    char name[16];     /* the thread's name, as in /proc; "" if it is not known */
    int32_t fence_error; /* the errno of the refused fence; 0: a reader is in the way */
    int32_t reserved;
    uint64_t missed;   /* how many grace periods have started since the reader's last load; only in calls by still_domain_silent */
};

/* Called when a reader has held up a grace period for `stall_after`: once for each region of the reader, by the thread that notices.
 * Also called when every fence of the domain has been refused for so long: once until a fence succeeds, by a thread whose poll was
 * refused. Several threads may call it at the same time. `stall` is valid until the function returns. The function may use the domain,
 * but must not wait: see still_wait. */
typedef void still_stall_fn(const struct still_stall *stall, void *context) STILL_NOEXCEPT;

struct still_domain_options {
    size_t size;              /* sizeof(struct still_domain_options) */
    const char *name;         /* for messages; copied; NULL: messages use a number */
    uint32_t mode;            /* enum still_mode */
    uint32_t boost;           /* enum still_boost */
    uint32_t boost_fallback;  /* used if this process lacks the rights for `boost`; if both are equal, making the domain fails instead */
    uint32_t reserved;        /* 0 */
    int64_t boost_after;      /* how long a grace period is held up before a reader is boosted; 0: 50 us */
    size_t max_pending;       /* objects that may be pending in the whole domain; 0: no limit */
    size_t max_pending_bytes; /* 0: no limit */
    int64_t stall_after;      /* how long a reader holds up a grace period before on_stall is called; 0: at once; with on_stall, not
                               * STILL_FOREVER */
    still_stall_fn *on_stall; /* NULL: no hook */
    void *context;            /* passed to on_stall */
};

#define STILL_DOMAIN_OPTIONS_INIT { sizeof(struct still_domain_options), NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL }

/* Makes a domain. `options` may be NULL.
 * errno: EINVAL; EOPNOTSUPP: the kernel has no membarrier(2) for STILL_MODE_ASYMMETRIC; EPERM: this process may not boost
 * threads. */
STILL_NODISCARD struct still_domain *still_domain_new(const struct still_domain_options *options) STILL_NOEXCEPT;

/* A new handle of the process's default domain, which all parts of a process may share. It is also the default domain of Rust
 * code in the same copy of the library.
 * errno: EEXIST: another copy of the library in the process has made its default domain; see PLUGINS. */
STILL_NODISCARD struct still_domain *still_domain_default(void) STILL_NOEXCEPT;

/* Frees the handle. The domain ends when its last handle is freed; its readers, reclaimers, queues, tables and holds count as
 * handles. Objects that are pending then are destroyed. */
int still_domain_free(struct still_domain *domain) STILL_NOEXCEPT;

struct still_stats {
    size_t size;            /* set by the caller: sizeof(struct still_stats) */
    uint64_t grace_periods; /* started */
    uint64_t heavy_fences;  /* issued; each interrupts the cores that run the process */
    uint64_t retired;       /* objects and callbacks */
    uint64_t freed;
    uint64_t pending;
    uint64_t pending_bytes;
    uint64_t beyond_limits; /* objects that were accepted although the domain was full, because the call cannot refuse */
    uint64_t handed_back;   /* retirements that were refused because a limit was reached */
    uint64_t waits;         /* retirements that waited for room */
    uint64_t pinned;        /* pending objects that protected loads hold, of those that the last poll has found held */
    int64_t oldest;         /* how long readers have held a pending object; -1: nobody holds one, whether or not anybody polls */
    uint64_t readers;       /* registered, of both kinds */
    uint64_t holds;         /* protected loads that are bound to no thread */
    uint64_t boosted;       /* how often a reader was boosted */
    uint64_t boost_refused;
    int32_t fence_error;    /* the errno of the last heavy fence if it failed: nothing is freed until one succeeds; 0: it succeeded */
    int32_t reserved;
    uint64_t ready;         /* pending objects that nobody holds: the next poll may free them */
    uint64_t vouched;       /* grace periods that ended without a heavy fence, since every reader had vouched for them, was in a
                             * region, or was offline; 0 in symmetric domains */
    uint64_t silent;        /* readers of other threads that have loaded nothing since the newest grace period started, and are not
                             * offline: while one of them sleeps, each grace period needs a heavy fence. still_domain_silent names
                             * their threads; 0 in symmetric domains */
    uint64_t stalls;        /* how often on_stall was called; without a hook, 0 unless the library was built to count */
    int64_t delay_median;   /* how long half of the freed objects had waited at most, of one in 64; -1: none was sampled */
    int64_t delay_p99;      /* the same for 99 of 100 */
};

/* Sums the counters of all threads, and looks at what readers hold: exact when the domain is idle, slightly out of date otherwise.
 * Linear in the reclaimers, the readers and their protected loads. Frees nothing, and issues no fence. */
int still_domain_stats(const struct still_domain *domain, struct still_stats *stats) STILL_NOEXCEPT;

/* Finds a reader whose region holds up the oldest grace period. Returns 1 and fills `stall`, or returns 0 if there is none. Linear in
 * the readers; reads /proc. */
int still_domain_stall(const struct still_domain *domain, struct still_stall *stall) STILL_NOEXCEPT;

/* Calls `function` with each reader that `silent` in struct still_stats counts, and with `context`. A thread that sleeps
 * (STILL_ACTIVITY_SLEEPING) should have called still_reader_offline before. Returns how many readers there were. Linear in the readers;
 * reads /proc for each silent one, which takes some 20 us. The struct is valid until the function returns. The function may call any
 * function of this header.
 * -EINVAL: `function` is NULL. */
int still_domain_silent(const struct still_domain *domain, still_stall_fn *function, void *context) STILL_NOEXCEPT;

/* Starts a grace period, and returns its number. The grace period is over when every reader that is in a region now has left that
 * region. Later grace periods have greater numbers. Returns 0 on an error, and sets errno. */
STILL_NODISCARD uint64_t still_start(const struct still_domain *domain) STILL_NOEXCEPT;

/* 1 if the grace period is over, 0 if not. Never waits. Linear in the readers; constant time if the grace period is already known to
 * be over.
 * -EINVAL also if the domain has not started this number. If it has, a number that came from another domain is not detected.
 * -EOPNOTSUPP: the kernel refuses the fence, and the grace period is NOT over. */
STILL_NODISCARD int still_check(const struct still_domain *domain, uint64_t token) STILL_NOEXCEPT;

/* Waits until the grace period is over, for at most `timeout`; STILL_FOREVER: as long as it takes.
 * -EOPNOTSUPP, at once: the kernel refuses the fence, and the grace period is NOT over. -ETIMEDOUT: a reader holds it up;
 * still_error() describes the reader. -EDEADLK: this thread is in a region of the domain,
 * and would wait for itself. Also, here and in every function that may wait: the call comes from a destructor, a callback or a stall
 * hook, of any domain. Such code must not wait, since others may wait for its end. */
STILL_NODISCARD int still_wait(const struct still_domain *domain, uint64_t token, int64_t timeout) STILL_NOEXCEPT;

/* Starts a grace period and waits for it, as still_wait does; then destroys the objects that were left to the domain
 * (still_domain_retire). Errors as for still_wait: after any of them, the grace period is NOT over. From any thread, registered or not. A
 * thread with an online QSBR reader calls still_qsbr_synchronize instead. */
STILL_NODISCARD int still_synchronize(const struct still_domain *domain, int64_t timeout) STILL_NOEXCEPT;

/* Waits until everything that was left to the domain before this call is destroyed. Use it at the end of a program, or before code
 * is unloaded. Errors as for still_wait: after any of them, the grace period is NOT over. -EDEADLK also if a protected load of this thread
 * holds one of the objects. */
STILL_NODISCARD int still_barrier(const struct still_domain *domain, int64_t timeout) STILL_NOEXCEPT;

/* For the child of a fork(2): releases what the readers of the parent's other threads held. After this call the child must not use
 * objects that it reached through those readers. Without this call, nothing that they held is freed in the child. */
int still_reset_after_fork(const struct still_domain *domain) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Readers: regions, quiescent states and protected loads
 */

/* The part of a handle that inline functions read. Programs must not use it: still_reader and still_qsbr are handles like any
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
/* In a state outside regions: the rest is the token for which the reader vouches. A state without this bit is that of a region. */
#define STILL_IDLE_ 0x8000000000000000u
/* The state of a reader that loads nothing before it has come back. */
#define STILL_AWAY_ 0xffffffffffffffffu
#define STILL_FULL_FENCE_ 1u
#define STILL_MARK_READER_ 0x5d0a0002u
#define STILL_MARK_QSBR_ 0x5d0a0003u

/* A reader with pins and protected loads. */
struct still_reader {
    struct still_head_ head_;
};

/* A reader that reports quiescent states. While it is online, it is in a region; each report ends one region and begins the
 * next. */
struct still_qsbr {
    struct still_head_ head_;
};

/* An object that a protected load holds, and the slot that protects it. */
struct still_protected {
    void *object; /* NULL: the link was NULL; there is nothing to release */
    void *slot_;
};

struct still_reader *still_reader_new_(const struct still_domain *domain, uint32_t layout) STILL_NOEXCEPT;
struct still_qsbr *still_qsbr_new_(const struct still_domain *domain, uint32_t layout) STILL_NOEXCEPT;
void still_answer_(struct still_head_ *head) STILL_NOEXCEPT;
int still_is_mine_(const struct still_head_ *head) STILL_NOEXCEPT;
void still_enter_(struct still_head_ *head) STILL_NOEXCEPT;
void *still_slot_(struct still_reader *reader) STILL_NOEXCEPT;
void still_slot_release_(void *slot) STILL_NOEXCEPT;
struct still_protected still_protect_back_(struct still_reader *reader, const void *link) STILL_NOEXCEPT;

/* Makes a reader for the calling thread. Keep it as long as the thread lives: making one costs a full fence and sometimes an
 * allocation. A thread may have several. errno: EPROTO: the program was compiled against another layout: recompile it; EAGAIN: the
 * process has used up its keys (pthread_key_create). */
STILL_NODISCARD static inline struct still_reader *still_reader_new(const struct still_domain *domain)
{
    return still_reader_new_(domain, STILL_LAYOUT);
}

/* The same, for quiescent states. The new reader is online. */
STILL_NODISCARD static inline struct still_qsbr *still_qsbr_new(const struct still_domain *domain)
{
    return still_qsbr_new_(domain, STILL_LAYOUT);
}

/* [owner] Frees a reader, and ends its pins and protected loads. -EPERM on another thread. If the owner does not call it, the end of
 * the thread frees the reader. */
int still_reader_free(struct still_reader *reader) STILL_NOEXCEPT;
int still_qsbr_free(struct still_qsbr *qsbr) STILL_NOEXCEPT;

/* A pointer type through which pointers of any type may be read: it may alias them. */
typedef void *__attribute__((__may_alias__)) still_any_;

#ifdef STILL_CHECKED
static inline void still_must_(int condition, const char *function, const char *what)
{
    if (!condition) {
        /* Macros call a function of their own name with an underscore at its end. */
        int length = 0;
        while (function[length] != 0 && (function[length] != '_' || function[length + 1] != 0))
            length++;
        fprintf(stderr, "%.*s: %s\n", length, function, what);
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

/* Whether the state is that of a region, or of a QSBR reader that is online. */
static inline int still_is_open_(uint64_t state)
{
    return (int64_t)state > 0;
}

/* Whether the reader may load, or begin a region, at once: it is in no region, not away, and, if this is a signal handler, has not
 * interrupted a return. One comparison: the states of regions are positive, STILL_AWAY_ is -1, and a reader that comes back has
 * the least number. */
static inline int still_is_here_(uint64_t state)
{
    return (int64_t)(state - 1) < -2;
}

/* Wakes the threads that wait for a change of the state. */
static inline void still_tell_(struct still_head_ *head)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(
            __atomic_load_n((uint32_t *)(void *)((char *)head->record + STILL_ATTENTION_), __ATOMIC_RELAXED) != 0, 0))
        still_answer_(head);
}

/* GCC warns that ThreadSanitizer does not know fences. The library tells ThreadSanitizer what these fences order. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/* Orders the reader's store before its later loads. Pairs with the writer's heavy fence. */
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

/* [owner] Reports a quiescent state: this thread no longer holds anything that it has loaded. Two loads and a comparison, and a store if
 * a grace period has begun since the last report. The reader must be online. While it is offline, a call is undefined: it would bring the
 * reader online without the fence of still_online, and objects may then be freed while the thread uses them. */
static inline void still_quiescent(struct still_qsbr *qsbr)
{
    struct still_head_ *head = &qsbr->head_;
    STILL_TEST_(head, STILL_MARK_QSBR_);
    STILL_MUST_(still_is_open_(__atomic_load_n(still_state_(head), __ATOMIC_RELAXED)), "the reader is offline: use still_online");
    STILL_MUST_(head->in_use == 0, "a call further up the stack is using the reader");
    /* Acquire: pairs with the read-modify-write of start. */
    uint64_t token = __atomic_load_n(head->token, __ATOMIC_ACQUIRE);
    if (__builtin_expect(__atomic_load_n(still_state_(head), __ATOMIC_RELAXED) != token, 0)) {
        /* Release: pairs with the acquire load of check. */
        __atomic_store_n(still_state_(head), token, __ATOMIC_RELEASE);
        still_tell_(head);
    }
}

/* [owner] Takes a QSBR reader offline, before its thread blocks. An offline reader holds nothing, and no grace period waits for it. Calling
 * it again is harmless. -EPERM on another thread. */
int still_offline(struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* [owner] Brings the reader back online; a full fence. Calling it again is harmless. -EPERM on another thread. */
int still_online(struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* 1 if the reader is online, 0 if not. From any thread. */
STILL_NODISCARD int still_is_online(const struct still_qsbr *qsbr) STILL_NOEXCEPT;
/* [owner] As still_synchronize, also in its errors, for the thread of an online QSBR reader. The reader is offline during the call. -EPERM
 * on another thread. */
STILL_NODISCARD int still_qsbr_synchronize(struct still_qsbr *qsbr, int64_t timeout) STILL_NOEXCEPT;

/* [owner] Begins a region: what this thread loads from now on is not freed before the matching still_unpin. Regions nest. */
static inline void still_pin(struct still_reader *reader)
{
    struct still_head_ *head = &reader->head_;
    STILL_TEST_(head, STILL_MARK_READER_);
    uint64_t *state = still_state_(head);
    uint64_t old = __atomic_load_n(state, __ATOMIC_RELAXED);
    if (__builtin_expect(still_is_here_(old), 1)) {
        /* Acquire: pairs with the read-modify-write of start. */
        uint64_t token = __atomic_load_n(head->token, __ATOMIC_ACQUIRE);
        /* Release: pairs with the acquire load of check. The fence below orders this store before the loads of the region. */
        __atomic_store_n(state, token, __ATOMIC_RELEASE);
        still_fence_(head);
    } else if (still_is_open_(old)) {
        head->nested++;
        /* This may be a signal handler that has interrupted a still_pin before its fence. */
        still_fence_(head);
    } else {
        /* The reader was away: it comes back first. */
        still_enter_(head);
    }
}

/* [owner] Undoes one still_pin. The outermost one ends the region. */
static inline void still_unpin(struct still_reader *reader)
{
    struct still_head_ *head = &reader->head_;
    STILL_TEST_(head, STILL_MARK_READER_);
    STILL_MUST_(still_is_open_(__atomic_load_n(still_state_(head), __ATOMIC_RELAXED)), "without a still_pin");
    STILL_MUST_(head->nested != 0 || head->in_use == 0, "this would end the region of a call further up the stack");
    if (head->nested == 0) {
        /* Acquire: pairs with the read-modify-write of start. What the thread loads from now on is newer than what was unlinked before. */
        uint64_t token = __atomic_load_n(head->token, __ATOMIC_ACQUIRE);
        /* Release: pairs with the acquire load of check. The accesses of the region come before the free. */
        __atomic_store_n(still_state_(head), token | STILL_IDLE_, __ATOMIC_RELEASE);
        still_tell_(head);
    } else {
        head->nested--;
    }
}

/* [owner] 1 in a region of this reader, 0 outside. */
STILL_NODISCARD static inline int still_is_pinned(const struct still_reader *reader)
{
    STILL_TEST_(&reader->head_, STILL_MARK_READER_);
    return still_is_open_(__atomic_load_n(still_state_(&reader->head_), __ATOMIC_RELAXED));
}

/* [owner] Takes a reader offline, before its thread sleeps: 1; or 0, and nothing has changed, in a region, or if the reader is offline
 * already, as a new reader is. The next still_pin, still_protect or lookup brings it back, with a full fence. What it protects stays
 * protected. A reader that has loaded something, and then sleeps, holds nothing up; but writers cannot know that it sleeps, and interrupt
 * the processors that run this process, again and again. For a reader that is offline they do not. Not in signal handlers. A still_pin in a
 * handler brings the reader back, too. */
int still_reader_offline(struct still_reader *reader) STILL_NOEXCEPT;

/* The calls that take a `link` are macros in C and templates in C++, over the functions below whose names end with an underscore.
 * `link` is the address of a pointer: a T **. A T * does not compile. The calls return a T *, and take a T * to be stored or compared;
 * the compiler warns of other pointers. In C, `const T *` and `void *` may be stored as well. */

/* Loads the pointer at `link`, in a region: under still_pin, or by a QSBR reader that is online. */
STILL_NODISCARD static inline void *still_load_(const void *link)
{
    /* Acquire: pairs with still_store and still_exchange. */
    return __atomic_load_n((still_any_ const *)link, __ATOMIC_ACQUIRE);
}

/* Stores a pointer at `link`. For a link that is NULL, or that no other thread sees yet. Otherwise use still_exchange. */
static inline void still_store_(void *link, const void *object)
{
    /* Release: pairs with still_load and still_protect. */
    __atomic_store_n((still_any_ *)link, (void *)(uintptr_t)object, __ATOMIC_RELEASE);
}

/* Exchanges the pointer at `link`, and returns the old one: retire that object if no other link leads to it. */
STILL_NODISCARD static inline void *still_exchange_(void *link, const void *object)
{
    return __atomic_exchange_n((still_any_ *)link, (void *)(uintptr_t)object, __ATOMIC_ACQ_REL);
}

/* Puts `object` at `link` if `expected` is there. Returns 1 if it was: retire `expected` if no other link leads to it. Returns 0 if it was
 * not; then nothing has changed. For several writers. From the load of `expected` to this call, the memory of that object must not be
 * used for another one: hold `expected` by a protected load, or stay in a region. */
STILL_NODISCARD static inline int still_compare_exchange_(void *link, const void *expected, const void *object)
{
    still_any_ there = (void *)(uintptr_t)expected;
    return __atomic_compare_exchange_n((still_any_ *)link, &there, (void *)(uintptr_t)object, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
        ? 1 : 0;
}

/* [owner] Releases a protected object. Does nothing if the object is NULL. */
static inline void still_release(struct still_protected held)
{
    STILL_MUST_(held.slot_ == NULL || __atomic_load_n((void **)held.slot_, __ATOMIC_RELAXED) == held.object,
                "it was released already");
    /* Only the reader's first slot has an address that is not a multiple of 16. */
    if (__builtin_expect(((uintptr_t)held.slot_ & 8u) != 0, 1)) {
        /* Release: pairs with the acquire load of a scan. The accesses to the object come before its free. */
        __atomic_store_n((void **)held.slot_, NULL, __ATOMIC_RELEASE);
    } else {
        still_slot_release_(held.slot_);
    }
}

/* [owner] Loads the pointer at `link`, and holds the object that it points to until still_release, or until the reader is freed. The
 * object must not be freed while it is linked there. It must be retired in the domain of the reader, with exactly this address. The call
 * tries again whenever `link` changes meanwhile. */
STILL_NODISCARD static inline struct still_protected still_protect_(struct still_reader *reader, const void *link)
{
    struct still_head_ *head = &reader->head_;
    STILL_TEST_(head, STILL_MARK_READER_);
    uint64_t *state = still_state_(head);
    /* Vouches for the token of this moment, unless the reader is in a region: whatever the thread loads from now on is newer than what was
     * unlinked before that token was started, so writers need no fence for this reader. Acquire: pairs with the read-modify-write of
     * start. */
    uint64_t vouched = __atomic_load_n(head->token, __ATOMIC_ACQUIRE) | STILL_IDLE_;
    uint64_t old = __atomic_load_n(state, __ATOMIC_RELAXED);
    if (__builtin_expect(old != vouched, 0) && !still_is_open_(old)) {
        if (!still_is_here_(old))
            return still_protect_back_(reader, link);
        /* Release: pairs with the acquire load of check. The slots that were set, and what was done in regions, come before. */
        __atomic_store_n(state, vouched, __ATOMIC_RELEASE);
    }
    struct still_protected held = { __atomic_load_n((still_any_ const *)link, __ATOMIC_RELAXED), NULL };
    if (held.object == NULL)
        return held;
    void **slot = (void **)(void *)((char *)state + (STILL_HAZARD_ - STILL_STATE_));
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
/* As still_protect: 1, and the pointer at `link` in `object`, which is the address of such a pointer, too; or 0, and NULL, if the pointer
 * is NULL. After the load, releases the object that the hold held before: `link` may lie in that object. -ENOMEM, and NULL: the hold holds
 * nothing. */
STILL_NODISCARD int still_hold_protect_(struct still_hold *hold, const void *link, void *object) STILL_NOEXCEPT;
/* Releases the object. */
int still_hold_release(struct still_hold *hold) STILL_NOEXCEPT;
/* Releases the object, and frees the hold. */
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
STILL_NODISCARD static inline int still_hold_protect(struct still_hold *hold, const L *link,
                                                     typename still_link_<L>::pointer *object) noexcept
{
    return still_hold_protect_(hold, link, object);
}
}
#else
/* 5 is the class of pointers in GCC and Clang. */
#define STILL_LINK_(link)                                                                                              \
    __extension__({ _Static_assert(__builtin_classify_type(*(link)) == 5, "this takes the address of a pointer: &p, not p"); })
/* Evaluates nothing: the compiler compares the type of `object` with that of the pointer at `link`. */
#define STILL_SUITS_(link, object) ((void)sizeof(__typeof__(1 ? (object) : *(link))))
/* Gives `value` the type of the pointer at `link`; the comma removes that pointer's qualifiers. Clang warns of an unused cast only if the
 * cast is an argument of a macro, not if it stands in a macro's body. So STILL_SAME_ makes it an argument. */
#define STILL_AS_(link, value) STILL_SAME_((STILL_LINK_(link), (__typeof__(((void)0, *(link))))value))
#define STILL_SAME_(...) __VA_ARGS__
#define still_load(link) STILL_AS_(link, still_load_(link))
#define still_store(link, object) (STILL_LINK_(link), STILL_SUITS_(link, object), still_store_((link), (object)))
#define still_exchange(link, object) STILL_AS_(link, (STILL_SUITS_(link, object), still_exchange_((link), (object))))
#define still_compare_exchange(link, expected, object)                                                                 \
    (STILL_LINK_(link), STILL_SUITS_(link, expected), STILL_SUITS_(link, object),                                      \
     still_compare_exchange_((link), (expected), (object)))
#define still_protect(reader, link) (STILL_LINK_(link), still_protect_((reader), (link)))
/* Evaluates nothing: the compiler checks that the pointer at `link` may be assigned to the one at `object`. */
#define STILL_GOES_TO_(link, object) ((void)sizeof(__typeof__(*(object) = *(link))))
#define still_hold_protect(hold, link, object)                                                                         \
    (STILL_LINK_(link), STILL_LINK_(object), STILL_GOES_TO_(link, object), still_hold_protect_((hold), (link), (object)))
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * Writers: objects are retired, and freed when no reader holds them
 */

/* Destroys an object: called once, when no reader can hold it. */
typedef void still_destroy_fn(void *object, void *context) STILL_NOEXCEPT;

/* What a retirement does when a limit is reached. */
enum still_when_full {
    STILL_FULL_HAND_BACK = 0, /* it fails; the object stays the caller's */
    STILL_FULL_RECLAIM = 1,   /* the caller of still_submit frees some of the submitted objects; if there is still no room, it fails.
                               * still_retire always frees what is ready, so there it means STILL_FULL_HAND_BACK */
    STILL_FULL_WAIT = 2,      /* it waits for room, for full_wait at most, then fails; see still_retire and still_submit for -EDEADLK */
};

struct still_reclaimer_options {
    size_t size;              /* sizeof(struct still_reclaimer_options) */
    size_t max_pending;       /* objects that may be pending; 0: 65,536, or 1,048,576 for a background reclaimer */
    size_t max_pending_bytes; /* 0: no limit */
    size_t batch;             /* this many objects start a grace period; 0: 128 */
    int64_t fence_interval;   /* time between grace periods for less than a batch; 0: 50 us; 1: 1 ns, the shortest; STILL_FOREVER: full batches only */
    uint32_t when_full;       /* enum still_when_full */
    uint32_t reserved;        /* 0 */
    int64_t full_wait;        /* for STILL_FULL_WAIT */
    size_t stack_size;        /* background only: as in struct still_thread_options */
    const char *thread_name;  /* background only: as name in struct still_thread_options */
};

#define STILL_RECLAIMER_OPTIONS_INIT { sizeof(struct still_reclaimer_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL }

/* A list of retired objects that its owner polls; it has no thread. For one thread at a time. */
struct still_reclaimer;

/* `options` may be NULL. errno: EINVAL, EBADF. */
STILL_NODISCARD struct still_reclaimer *
still_reclaimer_new(const struct still_domain *domain, const struct still_reclaimer_options *options) STILL_NOEXCEPT;

/* Frees the reclaimer. Pending objects pass to the domain, whose other reclaimers free them. */
int still_reclaimer_free(struct still_reclaimer *reclaimer) STILL_NOEXCEPT;

/* Retires an object to which no link leads any more: destroy(object, context) is called when no reader can hold it. `object` is the
 * address that readers protect, not that of a member. `bytes` is its size, for limits and statistics. Constant time, amortised.
 * -ENOSPC: the reclaimer is full of objects that readers keep alive; -EDQUOT: the domain has reached its limit; -EMSGSIZE: `bytes` alone is
 * above max_pending_bytes of the reclaimer or the domain; -ENOMEM; -EDEADLK: the call would wait for room, and comes from a destructor,
 * a callback or a stall hook; or it would wait with STILL_FOREVER, and only this thread could make room, by leaving its region or by
 * releasing what it protects. In all these cases the object stays the caller's. A call from a destructor that this reclaimer runs leaves
 * the object to the domain. */
STILL_NODISCARD int still_retire(struct still_reclaimer *reclaimer, void *object, size_t bytes, still_destroy_fn *destroy,
                                 void *context) STILL_NOEXCEPT;

/* Frees objects that no reader can hold. Examines at most `limit` objects, and returns how many it freed. Never waits for a reader. */
ssize_t still_poll(struct still_reclaimer *reclaimer, size_t limit) STILL_NOEXCEPT;

/* Waits until everything that was retired here is freed, for at most `timeout`. Errors as for still_wait, with -EOPNOTSUPP: the grace
 * period is NOT over; also -EDEADLK if a protected load of this thread holds one of the objects, and -ETIMEDOUT if one of another thread
 * does. */
STILL_NODISCARD int still_flush(struct still_reclaimer *reclaimer, int64_t timeout) STILL_NOEXCEPT;

/* How many objects are pending here. */
ssize_t still_pending(const struct still_reclaimer *reclaimer) STILL_NOEXCEPT;

/* Retires an object without a reclaimer: the object is left to the domain, and whoever serves its shelves frees it (WHO FREES above). No
 * limit applies to it: see still_stats.beyond_limits.
 * -ENOMEM: the object stays the caller's. From any thread. */
STILL_NODISCARD int still_domain_retire(const struct still_domain *domain, void *object, size_t bytes, still_destroy_fn *destroy,
                                        void *context) STILL_NOEXCEPT;

/* A thread of the library. It inherits the CPUs (pthread_setaffinity_np) and the priority of the thread that starts it. All signals
 * are blocked on it, except those of faults (SIGSEGV, SIGABRT and so on) and SIGPROF. */
struct still_thread_options {
    size_t size;       /* sizeof(struct still_thread_options) */
    size_t stack_size; /* bytes; 0: the default of pthread_create. Destructors and callbacks run on this stack */
    const char *name;  /* gdb and top show 15 characters of it; copied; NULL: "stillpoint-rcu" */
};

#define STILL_THREAD_OPTIONS_INIT { sizeof(struct still_thread_options), 0, NULL }

/* A reclaimer with its own thread. Any thread may submit objects to it. */
struct still_background;

/* Makes a background reclaimer, and starts its thread. errno: EINVAL, EBADF; EAGAIN: the thread could not be started. */
STILL_NODISCARD struct still_background *
still_background_new(const struct still_domain *domain, const struct still_reclaimer_options *options) STILL_NOEXCEPT;

/* As still_retire, from any thread, with these differences. In a destructor or a stall hook, the object is left to the domain, beyond any
 * limit. -EPIPE: in the child of a fork(2), where the background reclaimer has no thread. */
STILL_NODISCARD int still_submit(struct still_background *background, void *object, size_t bytes, still_destroy_fn *destroy,
                                 void *context) STILL_NOEXCEPT;

/* How many objects were submitted and are not freed yet. */
ssize_t still_background_pending(const struct still_background *background) STILL_NOEXCEPT;

/* Stops the background reclaimer: frees everything that was submitted, joins the thread, and frees the handle. Objects that readers
 * still hold after `timeout` pass to the domain, whose other reclaimers free them; returns how many were pending then. Waits for a destructor that is
 * running, however long it takes. With STILL_FOREVER, first end protected loads of this thread: they hold their objects here,
 * too. -EDEADLK: called from a destructor, a callback or a stall hook, or in a region of this thread; the handle stays valid. In the
 * child of a fork(2): only frees the handle, and returns how many objects are lost. */
ssize_t still_background_free(struct still_background *background, int64_t timeout) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Callbacks: in the program's own objects, without allocation, and never full
 */

/* Two words, anywhere in an object. They belong to the queue from still_call until the callback begins. */
struct still_callback {
    void *words_[2];
};

/* Three words, for objects that protected loads may hold. The callback is passed the address of the first two. */
struct still_object_callback {
    struct still_callback callback;
    void *word_;
};

typedef void still_callback_fn(struct still_callback *callback) STILL_NOEXCEPT;

/* A queue of callbacks. Any thread may push. A thread that calls still_queue_run, still_queue_poll or still_queue_barrier serves the
 * queue, one thread at a time. */
struct still_queue;

/* errno: EINVAL, EBADF. */
STILL_NODISCARD struct still_queue *still_queue_new(const struct still_domain *domain) STILL_NOEXCEPT;

/* Frees the handle. Pending callbacks pass to the domain, whose reclaimers call them, even if the queue was paused; this allocates.
 * Joins the thread of still_queue_start, which ends after its turn (still_queue_pause says how long that is); it does not wait for
 * readers. Other threads that serve the queue must have ended their calls. In the child of a fork(2), where the thread does not exist,
 * call still_queue_barrier first: pending callbacks are lost otherwise. -EBUSY from a callback of the queue. If the queue has such a
 * thread, -EDEADLK from another callback, a destructor or a stall hook. */
int still_queue_free(struct still_queue *queue) STILL_NOEXCEPT;

/* Starts a thread of the library that serves the queue until still_queue_free, or, after still_queue_stop, until it has called every
 * callback. still_queue_barrier then only waits for that thread. `options` may be NULL. -EAGAIN: the thread cannot be started; the
 * queue is unchanged, and the call may be repeated. -EALREADY: the queue has a thread. -EBUSY: still_queue_free has begun. In the
 * child of a fork(2), call it again after still_queue_reset_after_fork. */
int still_queue_start(struct still_queue *queue, const struct still_thread_options *options) STILL_NOEXCEPT;

/* Pushes a callback: function(callback) is called after a grace period, in the order of the pushes. The grace period waits for regions,
 * not for protected loads: never for an object that still_protect, still_table_protect or a hold may have found. Those are for
 * still_call_object. Nothing is called unless a thread serves the queue: start one with still_queue_start, or poll. The callback
 * must not be pushed again before the function is called: that would lose callbacks, and only STILL_CHECKED detects it (ERRORS).
 * Wait-free without STILL_CHECKED: an exchange and a store, and a system call if the thread that serves the queue sleeps. */
int still_call(struct still_queue *queue, struct still_callback *callback, still_callback_fn *function) STILL_NOEXCEPT;

/* As still_call, for an object that protected loads may hold. `object` is the address that they protect. The order of such
 * callbacks is not defined. */
int still_call_object(struct still_queue *queue, struct still_object_callback *callback, void *object,
                      still_callback_fn *function) STILL_NOEXCEPT;

/* The functions that take an object or a callback, where STILL_CHECKED is defined. Programs use the names without `_once_`. */
STILL_NODISCARD int still_retire_once_(struct still_reclaimer *reclaimer, void *object, size_t bytes, still_destroy_fn *destroy,
                                       void *context) STILL_NOEXCEPT;
STILL_NODISCARD int still_domain_retire_once_(const struct still_domain *domain, void *object, size_t bytes, still_destroy_fn *destroy,
                                              void *context) STILL_NOEXCEPT;
STILL_NODISCARD int still_submit_once_(struct still_background *background, void *object, size_t bytes, still_destroy_fn *destroy,
                                       void *context) STILL_NOEXCEPT;
int still_call_once_(struct still_queue *queue, struct still_callback *callback, still_callback_fn *function) STILL_NOEXCEPT;
int still_call_object_once_(struct still_queue *queue, struct still_object_callback *callback, void *object,
                            still_callback_fn *function) STILL_NOEXCEPT;
#ifdef STILL_CHECKED
#define still_retire still_retire_once_
#define still_domain_retire still_domain_retire_once_
#define still_submit still_submit_once_
#define still_call still_call_once_
#define still_call_object still_call_object_once_
#endif

/* Calls at most `limit` callbacks whose grace period is over, and returns how many it called. Never waits. 0 also while
 * another thread serves the queue. */
ssize_t still_queue_poll(struct still_queue *queue, size_t limit) STILL_NOEXCEPT;

/* Serves the queue on this thread until still_queue_stop is called; sleeps while there is nothing to do. Once the queue is stopped,
 * waits for the protected loads that hold its objects, also for those of this thread. -EDEADLK: in a region of this thread, or from a
 * destructor, a callback or a stall hook. */
int still_queue_run(struct still_queue *queue) STILL_NOEXCEPT;

/* Makes still_queue_run return once every callback has been called. This also holds for later calls of still_queue_run, and cannot
 * be undone. */
int still_queue_stop(struct still_queue *queue) STILL_NOEXCEPT;

/* Waits, for at most `timeout`, until every callback that was pushed before has been called, except those of objects that protected
 * loads still hold. Serves the queue itself if no other thread does. Keeps waiting while the queue is paused.
 * -EOPNOTSUPP, at once: the kernel refuses the fence, and the grace period is NOT over. -ETIMEDOUT: still_error() describes the
 * reader, if one holds it up. -EDEADLK from any callback, a destructor or a stall hook, in a region of this thread, or while this thread
 * has paused the queue. */
STILL_NODISCARD int still_queue_barrier(struct still_queue *queue, int64_t timeout) STILL_NOEXCEPT;

/* Waits for the callback that is running, if there is one, and for the rest of its turn. A turn of still_queue_poll has at most `limit` callbacks.
 * Any other has at most 64 or, if that is more, as many as there were protected objects at the last scan. From then on no callback runs until this
 * thread calls still_queue_resume. Pauses nest, and those of several threads may overlap. -EDEADLK from any callback, destructor or stall hook. */
STILL_NODISCARD int still_queue_pause(struct still_queue *queue) STILL_NOEXCEPT;
/* Ends a pause that this thread began. -EPERM: only other threads have paused the queue; -EINVAL: nobody has. */
int still_queue_resume(struct still_queue *queue) STILL_NOEXCEPT;

/* For the child of a fork(2) whose parent had paused the queue: ends all pauses, and lets the queue be served again. Call it after
 * still_reset_after_fork. */
int still_queue_reset_after_fork(struct still_queue *queue) STILL_NOEXCEPT;

/* How many callbacks were pushed and have not begun. */
ssize_t still_queue_pending(const struct still_queue *queue) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Tables: lock-free hash tables
 */

/* A hash table. All keys have the size that is chosen when the table is made; each value is one word. Lookups are lock-free; writers
 * lock a part of the table. The table grows by itself, and frees its own entries: see still_table_poll. The object that a value
 * points to belongs to the program: retire it when a call has handed the value back. Any number of threads may use the table. */
struct still_table;

/* Hashes the `bytes` bytes at `key`, which need not be aligned. Equal keys must have equal hashes. Keys with
 * the same hash share a chain; otherwise, the hash may be weak: the table mixes it. Must not call functions on the table. */
typedef uint64_t still_hash_fn(const void *key, size_t bytes, void *context) STILL_NOEXCEPT;

struct still_table_options {
    size_t size;          /* sizeof(struct still_table_options) */
    size_t capacity;      /* entries that fit before the table grows; 0: a few */
    size_t max_len;       /* 0: no limit */
    still_hash_fn *hash;  /* NULL: a fast hash with a random seed, which does not resist attackers who choose keys and measure times */
    void *context;        /* passed to the hash function */
};

#define STILL_TABLE_OPTIONS_INIT { sizeof(struct still_table_options), 0, 0, NULL, NULL }

/* Makes a table for keys of `key_size` bytes, 65,535 at most. Keys of 4, 8, 16 and 40 bytes lie in the entries, others behind
 * a pointer. Keys are compared byte by byte: set padding to zero (memset), or pack the struct. `options` may be NULL.
 * errno: EINVAL, EBADF; ENOMEM: there is no memory for the capacity. */
STILL_NODISCARD struct still_table *still_table_new(const struct still_domain *domain, size_t key_size,
                                                    const struct still_table_options *options) STILL_NOEXCEPT;

/* Frees the table and its entries; values are left as they are. No other call may use the table at the same time. */
int still_table_free(struct still_table *table) STILL_NOEXCEPT;

/* In a region, looks up a key: 1 and its value, or 0. The program may use the object that the value points to until that region ends,
 * provided that it retires such objects, or gives them to still_call. Outside regions, the call looks up as well, but the object may be
 * freed at any time: only the number is of use. Without a region: still_table_protect. `reader` is a struct still_reader or a struct
 * still_qsbr of this thread (-EPERM otherwise), in the table's domain (-EXDEV otherwise), and online (-EINVAL otherwise). */
STILL_NODISCARD int still_table_get(const struct still_table *table, const void *reader, const void *key, void **value) STILL_NOEXCEPT;

/* Looks up `count` keys, at most 64, which lie one after the other in memory. The cache misses of the lookups overlap. If key i is found,
 * bit i of `hits` is set and values[i] is written; otherwise values[i] is unchanged. `values` may not overlap `keys`. Returns how many keys
 * were found. */
STILL_NODISCARD int still_table_get_many(const struct still_table *table, const void *reader, const void *keys, size_t count,
                                         void **values, uint64_t *hits) STILL_NOEXCEPT;

/* [owner] Looks up a key, and protects the object that its value points to: 1; or 0, and `held` holds nothing. The object is held until
 * still_release(*held), or until the reader is freed. A thread that is preempted meanwhile holds up this one object; within the call, also
 * an entry and two arrays of buckets. Inside and outside of regions:
 *
 *     struct still_protected held;
 *     if (still_table_protect(table, reader, &key, &held) == 1) {
 *         const struct flow *flow = held.object;
 *         ...
 *         still_release(held);
 *     }
 *
 * The value is the address that is protected. Once the object has left the table, it must be freed by still_retire (still_domain_retire,
 * still_submit) or still_call_object, in the table's domain and with exactly this address. Never by still_call, nor after still_synchronize
 * or still_wait: they wait for regions only, and would free the object while it is held. A call that has removed or replaced the value
 * (still_table_remove, still_table_remove_if, still_table_insert) says who retires it; the table does not.
 * If the value is NULL, 1 is returned, and `held` holds nothing. A value with other bits in it than an address (a tag) is protected as it
 * is: it must be retired as it is. What a failed call leaves in `held` holds nothing, and may be released.
 * `reader` is a struct still_reader of this thread (-EPERM otherwise), in the table's domain (-EXDEV otherwise). -EINVAL also for a struct
 * still_qsbr, and if `held` is NULL. A thread may hold several objects: the first one that it holds is released by one store. The call
 * tries again whenever the entry changes meanwhile, and brings a reader back that is offline. */
STILL_NODISCARD int still_table_protect(const struct still_table *table, struct still_reader *reader, const void *key,
                                        struct still_protected *held) STILL_NOEXCEPT;

/* [owner] As still_table_protect, for `count` keys, at most 64, which lie one after the other in memory. The cache misses of the lookups
 * overlap. If key i is found, bit i of `hits` is set. Writes all `count` places of `held` (the first 64, if there are more), also if the
 * call fails; those of absent keys hold nothing. Returns how many keys were found. Each object is released by itself. -EINVAL also if
 * `held` or `hits` is NULL. */
STILL_NODISCARD int still_table_protect_many(const struct still_table *table, struct still_reader *reader, const void *keys,
                                             size_t count, struct still_protected *held, uint64_t *hits) STILL_NOEXCEPT;

/* Sets the value of a key: 0 if the key had none; 1, and the old value in `old`, if it had one. `old` may be NULL.
 * -ENOSPC: the table has max_len entries. Removed entries count until they are freed: while readers hold them, or another writer frees
 * some. For replacements, a table has 64 more places, each of which is taken until the replaced entry is freed. -ENOMEM. */
STILL_NODISCARD int still_table_insert(struct still_table *table, const void *key, void *value, void **old) STILL_NOEXCEPT;

/* Sets the value of a key that has none: 0. If the key has a value: -EEXIST, and that value in `found`, which may be NULL. */
STILL_NODISCARD int still_table_add(struct still_table *table, const void *reader, const void *key, void *value, void **found) STILL_NOEXCEPT;

/* Removes a key: 1 and its value, or 0. `old` may be NULL. */
int still_table_remove(struct still_table *table, const void *key, void **old) STILL_NOEXCEPT;

/* Removes a key if its value is `expected`: 1; or 0, and nothing has changed. Use it to free what a lookup has found: of several threads
 * that try, exactly one removes the value and may retire it. `reader` as for still_table_get. From the lookup that has found `expected` to
 * this call, stay in the region, or hold the object: its memory could be that of a newer object otherwise. */
int still_table_remove_if(struct still_table *table, const void *reader, const void *key, const void *expected) STILL_NOEXCEPT;

/* The number of entries. */
ssize_t still_table_len(const struct still_table *table) STILL_NOEXCEPT;

/* Frees removed and replaced entries that no reader can hold, and returns how many it freed. Never waits. Writes free such entries, too, a
 * few in each call; and so does whoever polls or waits in still_barrier in the domain. If no thread does any of this any more, the last
 * ones stay, and count in the domain, until the table is freed. The grace period of a call may begin in a later one, so call it until
 * still_table_pending returns 0 if all must be freed. */
ssize_t still_table_poll(struct still_table *table) STILL_NOEXCEPT;

/* How many objects wait on the table's own shelves: entries that were removed or replaced, and what its polls have taken over of what
 * others had left to the domain. */
ssize_t still_table_pending(const struct still_table *table) STILL_NOEXCEPT;

/* `key` need not be aligned. */
typedef int still_entry_fn(const void *key, void *value, void *context) STILL_NOEXCEPT;

/* Calls function(key, value, context) for each entry until the function returns a number other than 0. Returns that number, or 0 at the
 * end. Entries that are in the table during the whole call are visited once; entries that are added or removed meanwhile may or may not
 * be visited. The whole call is one region of `reader`. The function may change the table, read with the same reader, and pin and unpin
 * it; it must not report a quiescent state. */
int still_table_each(const struct still_table *table, const void *reader, still_entry_fn *function, void *context) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Timers: a hierarchical wheel
 */

/* A timer, in a struct of the program: 32 bytes, initialised with STILL_TIMER_INIT or with zeros. While it is in a wheel, the
 * program must neither move it nor touch it. */
struct still_timer {
    uint64_t words_[4];
};

#define STILL_TIMER_INIT { { 0, 0, 0, 0 } }

/* A hierarchical timer wheel, for one thread at a time. Times are in ticks, whose length the program chooses. The wheel allocates only
 * when it is made. It has no callbacks: the program pops the timers that are due. */
struct still_wheel;

/* Makes an empty wheel, at the time `now`. errno: ENOMEM. */
STILL_NODISCARD struct still_wheel *still_wheel_new(uint64_t now) STILL_NOEXCEPT;

/* Frees the wheel. It does not touch the timers that are in it: set them to zero before you use them again. */
int still_wheel_free(struct still_wheel *wheel) STILL_NOEXCEPT;

/* Adds a timer: constant time. -EEXIST: it is in a wheel already. */
int still_timer_add(struct still_wheel *wheel, struct still_timer *timer, uint64_t deadline) STILL_NOEXCEPT;

/* Removes a timer, due or not: 1, or 0 if it was in no wheel. Constant time. Afterwards the timer's memory is the program's. Here and in
 * the calls below, a timer that is in another wheel damages both wheels. */
int still_timer_cancel(struct still_wheel *wheel, struct still_timer *timer) STILL_NOEXCEPT;

/* Gives a timer another deadline, or adds it: 1 if it was in the wheel, 0 if not. */
int still_timer_reset(struct still_wheel *wheel, struct still_timer *timer, uint64_t deadline) STILL_NOEXCEPT;

/* 1 if the timer is in the wheel, 0 if not. */
STILL_NODISCARD int still_timer_is_pending(const struct still_wheel *wheel, const struct still_timer *timer) STILL_NOEXCEPT;

/* Sets the time. A time that is earlier than the last one is ignored. */
int still_wheel_advance(struct still_wheel *wheel, uint64_t now) STILL_NOEXCEPT;

/* Removes and returns a timer that was due at the last still_wheel_advance. A timer that was added since then, with a deadline in the
 * past, is due at the next still_wheel_advance. Afterwards the timer's memory is the program's. NULL: no timer is known to be due, and
 * errno is unchanged. One call moves at most 64 timers of each level within the wheel. If there are more, or a timer was due when it was
 * added, still_wheel_next_deadline says the present time: advance to that time once more, and pop on. Without it, a pop only moves. */
STILL_NODISCARD struct still_timer *still_wheel_pop(struct still_wheel *wheel) STILL_NOEXCEPT;

/* Removes and returns any timer, due or not. NULL: the wheel is empty. */
STILL_NODISCARD struct still_timer *still_wheel_take_any(struct still_wheel *wheel) STILL_NOEXCEPT;

/* 1, and a lower bound of the earliest deadline in `deadline`; or 0 if there is no timer. Constant time. */
STILL_NODISCARD int still_wheel_next_deadline(const struct still_wheel *wheel, uint64_t *deadline) STILL_NOEXCEPT;

/* How many timers are in the wheel. */
ssize_t still_wheel_len(const struct still_wheel *wheel) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Pools: objects of one size
 */

/* Objects of one size, in memory that the pool allocates when it is made and when it grows. A pool that never has more than 512 objects,
 * nor more than 64 buckets, is small unless it has a cache: any thread can get any free object. In other pools, threads keep some. */
struct still_pool;

enum still_pages {
    STILL_PAGES_BEST = 0,        /* the largest pages that are available */
    STILL_PAGES_RESERVED = 1,    /* from vm.nr_hugepages; if there are none, making the pool fails */
    STILL_PAGES_TRANSPARENT = 2,
    STILL_PAGES_SMALL = 3,
};

struct still_pool_options {
    size_t size;         /* sizeof(struct still_pool_options) */
    size_t max_objects;  /* the pool grows up to this; 0: it does not grow */
    size_t growth_step;  /* how many objects a growth adds, or a multiple for a call that needs more; 0: an eighth of what may be added */
    size_t bucket_bytes; /* a power of two; 0: depends on the size of the objects */
    size_t stride;       /* bytes from one object to the next; 0: the pool chooses */
    size_t cache;        /* objects in the cache of each thread; 0: an eighth of the capacity, 32 to 512, and none in a small pool;
                          * STILL_ALL: no cache */
    uint32_t max_locals; /* threads that may use the pool at the same time; 0: 256 */
    uint32_t pages;      /* enum still_pages */
    uint32_t hardened;   /* not 0: double frees are refused, writes to free objects are counted (still_pool_info.misuses), and objects that
                          * were put back stay unused for longer. Slower: no cache */
    uint32_t node;       /* 1 for NUMA node 0, and so on; 0: any. Before Linux 5.14, no reserved pages with this */
    void *memory;        /* memory of the program, aligned to `align`, in use until the pool is freed; NULL: the pool allocates memory */
    size_t memory_bytes; /* size of `memory`, with which max_objects must be 0; if it is too small, still_error() says what is needed */
    size_t high_water;   /* whole buckets that each thread keeps; 0: one in 16, 1 to 32, and none in a small pool; STILL_ALL: none */
    uint32_t count_calls; /* not 0: still_pool_call_stats counts. Calls take longer then */
    uint32_t reserved;    /* 0 */
};

#define STILL_POOL_OPTIONS_INIT { sizeof(struct still_pool_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0 }

/* Makes a pool of at least `capacity` objects of `bytes` bytes, aligned to `align`. `options` may be NULL. errno: EINVAL,
 * ENOMEM. */
STILL_NODISCARD struct still_pool *still_pool_new(size_t capacity, size_t bytes, size_t align,
                                                  const struct still_pool_options *options) STILL_NOEXCEPT;

/* Where the objects of a pool lie: object `i` of bucket `b` begins `b * bucket_bytes + (b % 2) * shift + i * stride` bytes after the
 * pool's memory. */
struct still_layout {
    size_t size;         /* set by the caller: sizeof(struct still_layout) */
    size_t capacity;     /* all objects, those of the growth included */
    size_t bytes;        /* of all buckets; without max_objects, what still_pool_options.memory_bytes must be */
    size_t bucket_bytes;
    size_t objects;      /* of a bucket */
    size_t stride;       /* bytes from one object to the next */
    size_t shift;        /* bytes by which the objects of every other bucket are moved up, so that not all buckets use the same half of
                          * a processor's cache; often 0 */
};

/* The layout that a pool of these numbers will have, for programs that find its memory themselves: 0, or -EINVAL. No pool is made. */
int still_pool_layout(size_t capacity, size_t bytes, size_t align, const struct still_pool_options *options,
                      struct still_layout *layout) STILL_NOEXCEPT;

/* Frees the pool and its memory. -EBUSY: a thread still has a local of it. Returns how many objects were still in use: their memory is
 * freed too. */
ssize_t still_pool_free(struct still_pool *pool) STILL_NOEXCEPT;

/* One thread's access to a pool, with a cache. */
struct still_local;

/* errno: EAGAIN: max_locals threads use the pool already, or the process has used up its keys (pthread_key_create). */
STILL_NODISCARD struct still_local *still_local_new(struct still_pool *pool) STILL_NOEXCEPT;
/* [owner] Frees the local, and returns its cached objects to the pool. -EPERM on another thread. If the owner does not call it, the end
 * of the thread frees the local. */
int still_local_free(struct still_local *local) STILL_NOEXCEPT;
/* [owner] From now on no thread owns the local, and the end of a thread does not free it. Any thread may use it, one at a time, and free
 * it: the program keeps them apart, as by a lock. -EPERM on another thread. */
int still_local_detach(struct still_local *local) STILL_NOEXCEPT;

/* [owner] Gets an object; NULL if none is free (errno ENOMEM). Its bytes are as its last user left them; in a hardened
 * pool, they are 0xa5. */
STILL_NODISCARD void *still_local_get(struct still_local *local) STILL_NOEXCEPT;
/* [owner] Gets `count` objects, or none: 0, or -ENOMEM. */
STILL_NODISCARD int still_local_get_many(struct still_local *local, void **objects, size_t count) STILL_NOEXCEPT;
/* [owner] Puts back an object, which any thread may have got. -EINVAL: its address is outside the pool, or, in a hardened pool, not that
 * of an object; -EALREADY: it is free already (hardened pools only). */
int still_local_put(struct still_local *local, void *object) STILL_NOEXCEPT;
/* [owner] Puts back `count` objects. If one is refused, those before it have been put back. */
int still_local_put_many(struct still_local *local, void *const *objects, size_t count) STILL_NOEXCEPT;

/* Objects that lie one after the other: a whole bucket. */
struct still_block {
    void *start;
    size_t objects;
    size_t stride; /* bytes from one object to the next */
};

/* [owner] Gets a whole free bucket: 0, or -ENOMEM if there is none. Its objects may be put back one by one. */
STILL_NODISCARD int still_local_get_block(struct still_local *local, struct still_block *block) STILL_NOEXCEPT;
/* [owner] Gets `count` blocks, or none: 0, or -ENOMEM. `starts` gets the address of the first object of each. */
STILL_NODISCARD int still_local_get_blocks(struct still_local *local, void **starts, size_t count) STILL_NOEXCEPT;
/* [owner] Puts back all objects of a block that still_local_get_block returned. On an error, nothing was put back (unless another
 * thread was just freeing one of its objects as well, against the rules). -EINVAL: the block is not a whole block of the pool; -EALREADY:
 * one of its objects is free already (hardened pools only). */
int still_local_put_block(struct still_local *local, const struct still_block *block) STILL_NOEXCEPT;

struct still_pool_info {
    size_t size; /* set by the caller: sizeof(struct still_pool_info) */
    size_t capacity;
    size_t available; /* free objects. Any thread can get them if the pool is small; otherwise some may be in caches of other threads */
    size_t in_use;    /* objects that programs have */
    size_t misuses;   /* found after the faulty call had returned: addresses put back that were free already, or not those of objects;
                       * in hardened pools also objects that were written to while they were free, found when they are got again */
};

/* Linear in the buckets and caches. */
int still_pool_stats(const struct still_pool *pool, struct still_pool_info *stats) STILL_NOEXCEPT;

/* Counts of calls that have succeeded and failed, of all threads, those that caches serve included. */
struct still_pool_calls {
    size_t size;              /* set by the caller: sizeof(struct still_pool_calls) */
    size_t gets;              /* calls that got single objects */
    size_t got;               /* objects that these calls got */
    size_t failed_gets;       /* calls that found too few */
    size_t not_got;           /* objects that those calls wanted */
    size_t puts;              /* calls that put single objects back */
    size_t put;               /* objects that calls put back, those before a refused one included */
    size_t failed_puts;       /* calls of which an object was refused */
    size_t block_gets;        /* blocks that were got */
    size_t failed_block_gets; /* calls that found no whole block */
    size_t block_puts;        /* blocks that were put back */
    size_t failed_block_puts; /* blocks that were refused */
};

/* Zeros if the pool was not made with `count_calls`. A block that the undoing of still_local_get_blocks puts back counts as got and put
 * back. Linear in the caches. */
int still_pool_call_stats(const struct still_pool *pool, struct still_pool_calls *calls) STILL_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
