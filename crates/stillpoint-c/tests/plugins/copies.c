/* What two copies of the library in a process are to each other. The arguments name them: a plugin, or "-" for the copy in this program;
 * and for each a part of the name of the file in which it is. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy.h"

#define CHECK(truth)                                                                                       \
    do {                                                                                                   \
        if (!(truth)) {                                                                                    \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #truth, last);                                  \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

static const char *last = "";
static char told[1024];

static const struct copy *loaded(const char *file, void **library)
{
    *library = NULL;
    if (strcmp(file, "-") == 0) {
#ifdef HAS_COPY
        return copy();
#endif
        return NULL;
    }
    *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    const struct copy *(*function)(void);
    *(void **)&function = dlsym(*library, "copy");
    CHECK(function != NULL);
    return function();
}

static void tells(const char *report, void *context) STILL_NOEXCEPT
{
    (void)context;
    snprintf(told, sizeof told, "%s", report);
}

int main(int count, char **arguments)
{
    CHECK(count == 5);
    void *library, *other;
    const struct copy *first = loaded(arguments[1], &library), *second = loaded(arguments[2], &other);
    const char *of_first = arguments[3], *of_second = arguments[4];
    CHECK(first != NULL && second != NULL);

    /* Whichever comes first has the default domain; the other one's is refused, again and again. */
    struct still_domain *domain = first->domain_default();
    CHECK(domain != NULL);
    for (int i = 0; i < 2; i++) {
        errno = 0;
        CHECK(second->domain_default() == NULL && errno == EEXIST);
        last = second->error();
        const char *has = strstr(last, "already has"), *wants = strstr(last, "cannot have");
        const char *who = strstr(last, of_first), *whom = has == NULL ? NULL : strstr(has, of_second);
        CHECK(who != NULL && who < has && whom != NULL && whom < wants);
    }
    struct still_domain *again = first->domain_default();
    CHECK(again != NULL && first->domain_free(again) == 0);

    /* Domains with names work in both. */
    struct still_domain *named = second->domain_new(NULL);
    struct still_reader *reader = second->reader_new(named, STILL_LAYOUT);
    CHECK(named != NULL && reader != NULL && second->reads(reader, named) == 0);

    /* Handles of the other copy are refused. */
    CHECK(first->synchronize(named, 0) == -EBADF && strstr(first->error(), "another copy") != NULL);
    CHECK(second->synchronize(domain, 0) == -EBADF && first->reader_free(reader) == -EBADF);
    CHECK(first->domain_free(named) == -EBADF && first->reader_new(named, STILL_LAYOUT) == NULL && errno == EBADF);
    CHECK(first->synchronize(domain, STILL_FOREVER) == 0 && second->synchronize(named, STILL_FOREVER) == 0);

    /* The functions of a flavour return nothing: the second copy reports. */
    first->on_report(tells, NULL);
    second->on_report(tells, NULL);
    first->flavour();
    last = told;
    CHECK(told[0] == 0);
    second->flavour();
    CHECK(strstr(told, "memb") != NULL && strstr(told, of_first) != NULL && strstr(told, of_second) != NULL);

    /* A timer that is pending names its list by a number, and each copy counts from the beginning. */
    CHECK(first->timers(4) == 0 && first->timers(4) == -EALREADY && second->timers(4) == -EEXIST);
    last = second->error();
    CHECK(strstr(last, "rte_timer.h") != NULL && strstr(last, of_first) != NULL);
    CHECK(second->reader_free(reader) == 0 && second->domain_free(named) == 0 && first->domain_free(domain) == 0);

    /* A plugin that was linked as the manual says stays after it is closed, with its default domain. */
    CHECK(library == NULL || dlclose(library) == 0);
    CHECK(second->domain_default() == NULL && errno == EEXIST);
    return 0;
}
