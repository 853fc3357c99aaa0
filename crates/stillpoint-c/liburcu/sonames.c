/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A library under liburcu's name, for programs that were compiled against liburcu and call its functions: they run on stillpoint without
 * being compiled again. `install` compiles this file once for each flavour (STILL_FLAVOUR: memb, mb, qsbr or bp). All names but those below
 * are jumps into libstillpoint.so, whose functions have the same names after `still_`.
 *
 * It exports neither urcu_*_gp nor urcu_*_reader. Programs that have liburcu's readers inline (_LGPL_SOURCE) use these variables, and
 * must be compiled again: the loader refuses them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define JOINED_(a, b, c) a##b##c
#define JOINED(a, b, c) JOINED_(a, b, c)
#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)
#define EXPORTED __attribute__((__visibility__("default")))

/* A name of this flavour. */
#define NAME(rest) JOINED(urcu_, STILL_FLAVOUR, _##rest)

#if defined(__x86_64__)
#define GO "endbr64\n\tjmp still_"
#define THERE "@PLT\n"
#elif defined(__aarch64__)
#define GO "hint #34\n\tb still_"
#define THERE "\n"
#else
#error "liburcu's names are for x86-64 and aarch64"
#endif

#define FUNCTION_(name)                                                                                                \
    __asm__(".text\n\t.globl " name "\n\t.type " name ", %function\n" name ":\n\t" GO name THERE "\t.size " name ", . - " name "\n");
#define FUNCTION(rest) FUNCTION_("urcu_" TEXT(STILL_FLAVOUR) "_" #rest)

FUNCTION(read_lock)
FUNCTION(read_unlock)
FUNCTION(read_ongoing)
FUNCTION(quiescent_state)
FUNCTION(thread_offline)
FUNCTION(thread_online)
FUNCTION(register_thread)
FUNCTION(unregister_thread)
FUNCTION(init)
FUNCTION(exit)
FUNCTION(synchronize_rcu)
FUNCTION(start_poll_synchronize_rcu)
FUNCTION(poll_state_synchronize_rcu)
FUNCTION(call_rcu)
FUNCTION(barrier)
FUNCTION(create_call_rcu_data)
FUNCTION(call_rcu_data_free)
FUNCTION(get_call_rcu_thread)
FUNCTION(get_default_call_rcu_data)
FUNCTION(get_cpu_call_rcu_data)
FUNCTION(get_thread_call_rcu_data)
FUNCTION(get_call_rcu_data)
FUNCTION(set_thread_call_rcu_data)
FUNCTION(set_cpu_call_rcu_data)
FUNCTION(create_all_cpu_call_rcu_data)
FUNCTION(free_all_cpu_call_rcu_data)
FUNCTION(call_rcu_before_fork)
FUNCTION(call_rcu_after_fork_parent)
FUNCTION(call_rcu_after_fork_child)
FUNCTION(defer_rcu)
FUNCTION(defer_register_thread)
FUNCTION(defer_unregister_thread)
FUNCTION(defer_barrier)
FUNCTION(defer_barrier_thread)
FUNCTION(defer_exit)
FUNCTION(register_rculfhash_atfork)
FUNCTION(unregister_rculfhash_atfork)

/* The table of functions that liburcu's containers use. A program may have a copy of it, which has the size of that of the liburcu against
 * which it was compiled. The loader complains if the symbol has another size. */
#define FLAVOUR "urcu_" TEXT(STILL_FLAVOUR) "_flavor"
#define OURS(rest) "\t.quad still_urcu_" TEXT(STILL_FLAVOUR) "_" #rest "\n"
__asm__(".pushsection .data.rel.ro, \"aw\"\n\t.balign 8\n\t.globl " FLAVOUR "\n\t.type " FLAVOUR ", %object\n"
        "\t.size " FLAVOUR ", " TEXT(STILL_FLAVOUR_BYTES) "\n" FLAVOUR ":\n"
        OURS(read_lock) OURS(read_unlock) OURS(read_ongoing) OURS(quiescent_state) OURS(call_rcu) OURS(synchronize_rcu) OURS(defer_rcu)
        OURS(thread_offline) OURS(thread_online) OURS(register_thread) OURS(unregister_thread) OURS(barrier)
        OURS(register_rculfhash_atfork) OURS(unregister_rculfhash_atfork) OURS(start_poll_synchronize_rcu)
        OURS(poll_state_synchronize_rcu) ".popsection\n");

/* Pointers, as functions. */
#define POINTERS(dereference, set, exchange, compare)                                                                  \
    EXPORTED void *dereference(void *p);                                                                               \
    EXPORTED void *dereference(void *p)                                                                                \
    {                                                                                                                  \
        return __atomic_load_n(&p, __ATOMIC_ACQUIRE);                                                                  \
    }                                                                                                                  \
    EXPORTED void *set(void **p, void *v);                                                                             \
    EXPORTED void *set(void **p, void *v)                                                                              \
    {                                                                                                                  \
        __atomic_store_n(p, v, __ATOMIC_RELEASE);                                                                      \
        return v;                                                                                                      \
    }                                                                                                                  \
    EXPORTED void *exchange(void **p, void *v);                                                                        \
    EXPORTED void *exchange(void **p, void *v)                                                                         \
    {                                                                                                                  \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                            \
    }                                                                                                                  \
    EXPORTED void *compare(void **p, void *old, void *new_);                                                           \
    EXPORTED void *compare(void **p, void *old, void *new_)                                                            \
    {                                                                                                                  \
        (void)__atomic_compare_exchange_n(p, &old, new_, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                       \
        return old;                                                                                                    \
    }

POINTERS(rcu_dereference_sym, rcu_set_pointer_sym, rcu_xchg_pointer_sym, rcu_cmpxchg_pointer_sym)

#ifdef STILL_FLAVOUR_IS_BP
POINTERS(urcu_bp_dereference_sym, urcu_bp_set_pointer_sym, urcu_bp_xchg_pointer_sym, urcu_bp_cmpxchg_pointer_sym)
FUNCTION(before_fork)
FUNCTION(after_fork_parent)
FUNCTION(after_fork_child)

/* Called by liburcu's readers of a thread that is not registered. Ours register by themselves. */
EXPORTED void urcu_bp_register(void);
EXPORTED void urcu_bp_register(void)
{
}

/* What the header does in programs that are compiled again: so sections in signal handlers find memory. */
void still_urcu_bp_prepare_(void);
__attribute__((__constructor__)) static void prepare(void)
{
    still_urcu_bp_prepare_();
}
#endif

/* Whether readers go without fences: what liburcu's own inline readers ask. */
#if defined(STILL_FLAVOUR_IS_BP) || defined(STILL_FLAVOUR_IS_MEMB)
EXPORTED int NAME(has_sys_membarrier) = 1;
#endif

/* For <urcu/futex.h>, which calls these where a kernel has no futexes. */
static int futex(int32_t *word, int operation, int32_t value, const struct timespec *timeout, int32_t *word2, int32_t value3)
{
    return (int)syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}

EXPORTED int compat_futex_noasync(int32_t *uaddr, int op, int32_t val, const struct timespec *timeout, int32_t *uaddr2, int32_t val3);
EXPORTED int compat_futex_noasync(int32_t *uaddr, int op, int32_t val, const struct timespec *timeout, int32_t *uaddr2, int32_t val3)
{
    return futex(uaddr, op, val, timeout, uaddr2, val3);
}

EXPORTED int compat_futex_async(int32_t *uaddr, int op, int32_t val, const struct timespec *timeout, int32_t *uaddr2, int32_t val3);
EXPORTED int compat_futex_async(int32_t *uaddr, int op, int32_t val, const struct timespec *timeout, int32_t *uaddr2, int32_t val3)
{
    return futex(uaddr, op, val, timeout, uaddr2, val3);
}

/* By this, the libraries of this folder know each other. */
EXPORTED const int still_liburcu_ = 1;

/* Whether this is a file of liburcu with the same flavour. */
static int is_of_flavour(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    size_t length = strlen("liburcu-" TEXT(STILL_FLAVOUR) ".so");
    if (strncmp(name, "liburcu-" TEXT(STILL_FLAVOUR) ".so", length) == 0)
        return 1;
#ifdef STILL_FLAVOUR_IS_MEMB
    return strncmp(name, "liburcu.so", strlen("liburcu.so")) == 0;
#else
    return 0;
#endif
}

/* Files of this flavour that are loaded. There are two at most, unless some are copies. */
struct found {
    char paths[4][PATH_MAX];
    size_t count;
};

/* Only notes them: the loader holds a lock here, and dlopen takes another one. */
static int note(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct found *found = argument;

    (void)size;
    if (info->dlpi_name != NULL && is_of_flavour(info->dlpi_name) && strlen(info->dlpi_name) < PATH_MAX) {
        strcpy(found->paths[found->count++], info->dlpi_name);
    }
    return found->count == sizeof found->paths / sizeof *found->paths;
}

static int is_ours(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    int is_one = library == NULL || dlsym(library, "still_liburcu_") != NULL;

    if (library != NULL)
        (void)dlclose(library);
    return is_one;
}

/* The readers of an original that is loaded as well would be invisible to this library, which would free objects under them. There is nobody
 * to whom a constructor could return an error. */
__attribute__((__constructor__)) static void is_alone(void)
{
    struct found found;
    const char *other = NULL;

    found.count = 0;
    (void)dl_iterate_phdr(note, &found);
    for (size_t i = 0; i < found.count; i++)
        if (!is_ours(found.paths[i]))
            other = found.paths[i];
    if (other == NULL)
        return;
    char text[PATH_MAX + 256];
    int length = snprintf(text, sizeof text,
                          "stillpoint: %s is loaded as well, and its readers would not be seen: load either that library, or the one in "
                          "its place, by LD_LIBRARY_PATH for all of the program.\n",
                          other);
    ssize_t written = write(STDERR_FILENO, text, length > 0 && (size_t)length < sizeof text ? (size_t)length : 0);
    (void)written;
    _exit(1);
}
