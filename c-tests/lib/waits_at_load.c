/* build: plain; run: by dlopen
 * See cases/constructor_waits.c.
 */
void program_waits(void);

__attribute__((constructor)) static void wait_for_a_thread(void)
{
    program_waits();
}
