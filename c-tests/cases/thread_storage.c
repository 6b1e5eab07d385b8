/* build: -Wl,-rpath,$ORIGIN; run: thread_storage LIBRARY… on nothing
 * Opens libraries one after the other; the last has static thread storage. glibc keeps 1,664 bytes
 * for all such libraries that are opened later.
 */
#include "check.h"

int main(int count, char **libraries)
{
    void *library = NULL;
    for (int i = 1; i < count; i++) {
        library = dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL);
        if (!library)
            fprintf(stderr, "%s\n", dlerror());
        REQUIRE(library);
    }
    int (*touch)(void) = (int (*)(void))dlsym(library, "touch_thread_storage");
    REQUIRE(touch && touch() == 0);
    printf("all opened\n");
    return 0;
}
