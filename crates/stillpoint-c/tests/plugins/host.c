/* Loads the libraries that its arguments name, one after the other, "-" before those for a namespace of their own. Each that has a function
 * `works` runs it on this thread and on another one. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *run(void *works)
{
    int (*function)(void);
    *(void **)&function = works;
    return function() == 0 ? works : NULL;
}

int main(int count, char **arguments)
{
    int is_apart = 0;
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "-") == 0) {
            is_apart = 1;
            continue;
        }
        void *library = is_apart ? dlmopen(LM_ID_NEWLM, arguments[i], RTLD_NOW | RTLD_LOCAL) : dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        void *works = dlsym(library, "works"), *answer = NULL;
        if (works == NULL)
            continue;
        /* A namespace has its own libc, which does not know threads of this one. */
        pthread_t thread;
        if (run(works) == NULL || (!is_apart && (pthread_create(&thread, NULL, run, works) != 0 || pthread_join(thread, &answer) != 0 || answer == NULL))) {
            fprintf(stderr, "%s does not work\n", arguments[i]);
            return 1;
        }
    }
    return 0;
}
