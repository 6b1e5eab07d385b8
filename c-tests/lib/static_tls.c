/* build: plain; run: by dlopen
 * A library whose thread storage must lie in the block that each thread has from its start.
 */
static _Thread_local char bytes[512] __attribute__((tls_model("initial-exec")));

int touch_thread_storage(void);

int touch_thread_storage(void)
{
    for (unsigned i = 0; i < sizeof bytes; i++)
        if (bytes[i]++ != 0)
            return 1;
    return 0;
}
