/* A program that loads the library, uses it on threads that go on, and closes it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "stillpoint.h"

static struct still_domain *(*domain_default)(void);
static int (*barrier)(const struct still_domain *, int64_t);
static const char *(*error)(void);
static pthread_barrier_t used, closed;

static void *uses(void *unused)
{
    struct still_domain *domain = domain_default();
    /* A thread-local of the library, and one of its threads' destructors. */
    if (domain == NULL || barrier(domain, STILL_FOREVER) != 0 || barrier(NULL, 0) != -22 || error()[0] == 0)
        abort();
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return unused;
}

int main(void)
{
    void *library = dlopen("libstillpoint.so.0.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&domain_default = dlsym(library, "still_domain_default");
    *(void **)&barrier = dlsym(library, "still_barrier");
    *(void **)&error = dlsym(library, "still_error");
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    pthread_t thread;
    if (pthread_create(&thread, NULL, uses, NULL) != 0)
        return 1;
    pthread_barrier_wait(&used);
    if (dlclose(library) != 0)
        return 1;
    pthread_barrier_wait(&closed);
    return pthread_join(thread, NULL);
}
