/* Tests of STILL_CHECKED. Each misuse runs in a child process, which must abort with the right message. */
#undef STILL_CHECKED
#define STILL_CHECKED
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct still_domain *domain;
static struct still_reader *reader;
static struct still_qsbr *qsbr;
static struct object *links[3];

static void unpins_only(void)
{
    still_pin(reader);
    still_unpin(reader);
    still_unpin(reader);
}

static void *pins(void *unused)
{
    still_pin(reader);
    return unused;
}

static void *unpins(void *unused)
{
    still_unpin(reader);
    return unused;
}

static void *reports(void *unused)
{
    still_quiescent(qsbr);
    return unused;
}

static void *protects(void *unused)
{
    (void)!still_protect(reader, &links[0]).object;
    return unused;
}

static void elsewhere(void *(*function)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void pins_elsewhere(void)
{
    elsewhere(pins);
}

static void unpins_elsewhere(void)
{
    still_pin(reader);
    elsewhere(unpins);
}

static void reports_elsewhere(void)
{
    elsewhere(reports);
}

static void protects_elsewhere(void)
{
    elsewhere(protects);
}

static void reports_offline(void)
{
    CHECK(still_offline(qsbr) == 0);
    still_quiescent(qsbr);
}

static void releases_twice(void)
{
    struct still_protected held = still_protect(reader, &links[0]);
    still_release(held);
    still_release(held);
}

static void releases_a_further_one_twice(void)
{
    struct still_protected first = still_protect(reader, &links[0]), second = still_protect(reader, &links[1]);
    still_release(second);
    (void)first;
    still_release(second);
}

static void uses_a_freed_one(void)
{
    CHECK(still_reader_free(reader) == 0);
    still_pin(reader);
}

static void uses_another_kind(void)
{
    still_pin((struct still_reader *)(void *)qsbr);
}

static int reports_within(const void *key, void *value, void *context) STILL_NOEXCEPT
{
    (void)key, (void)value, (void)context;
    still_quiescent(qsbr);
    return 0;
}

static int unpins_within(const void *key, void *value, void *context) STILL_NOEXCEPT
{
    (void)key, (void)value, (void)context;
    still_unpin(reader);
    return 0;
}

static void walk(const void *by, still_entry_fn *function)
{
    struct still_table *table = still_table_new(domain, 8, NULL);
    uint64_t key = 1;
    CHECK(still_table_insert(table, &key, NULL, NULL) == 0);
    CHECK(still_table_each(table, by, function, NULL) == 0);
    CHECK(still_table_free(table) == 0);
}

static void reports_in_a_walk(void)
{
    walk(qsbr, reports_within);
}

static void ends_a_walk(void)
{
    walk(reader, unpins_within);
}

/* This is no misuse: the pin is the caller's, and the walk has its own region. */
static void unpins_its_own_in_a_walk(void)
{
    still_pin(reader);
    walk(reader, unpins_within);
    CHECK(!still_is_pinned(reader));
    struct still_protected all[3];
    for (int i = 0; i < 3; i++)
        all[i] = still_protect(reader, &links[i]);
    for (int i = 0; i < 3; i++)
        still_release(all[i]);
    still_quiescent(qsbr);
    _exit(0);
}

static void aborts(void (*misuse)(void), const char *words)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(still_reset_after_fork(domain) == 0);
        CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
        misuse();
        fprintf(stderr, "the misuse was not detected");
        _exit(1);
    }
    CHECK(close(ends[1]) == 0);
    char said[200] = "";
    size_t length = 0;
    for (ssize_t more; (more = read(ends[0], said + length, sizeof said - 1 - length)) > 0; length += (size_t)more) {
    }
    CHECK(close(ends[0]) == 0);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    int is_right = words == NULL ? status == 0
                                 : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(said, words) != NULL;
    if (!is_right) {
        fprintf(stderr, "%s: status %d, said %s\n", words ? words : "nothing", status, said);
        exit(1);
    }
}

int main(void)
{
    domain = still_domain_new(NULL);
    reader = still_reader_new(domain);
    qsbr = still_qsbr_new(domain);
    for (int i = 0; i < 3; i++)
        links[i] = make(i);
    aborts(unpins_its_own_in_a_walk, NULL);
    aborts(unpins_only, "still_unpin: without a still_pin");
    aborts(pins_elsewhere, "still_pin: the reader belongs to another thread");
    aborts(unpins_elsewhere, "still_unpin: the reader belongs to another thread");
    aborts(reports_elsewhere, "still_quiescent: the reader belongs to another thread");
    aborts(protects_elsewhere, "belongs to another thread");
    aborts(reports_offline, "still_quiescent: the reader is offline");
    aborts(releases_twice, "still_release: it was released already");
    aborts(releases_a_further_one_twice, "still_release: it was released already");
    aborts(uses_a_freed_one, "still_pin: not a reader of this kind");
    aborts(uses_another_kind, "still_pin: not a reader of this kind");
    aborts(reports_in_a_walk, "still_quiescent: a call further up");
    aborts(ends_a_walk, "still_unpin: this would end the region");
    return 0;
}
