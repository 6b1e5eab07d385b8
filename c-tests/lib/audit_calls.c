/* build: plain; run: by LD_AUDIT
 * For the dynamic linker's LD_AUDIT, as tools that trace calls of libraries: sees each call that a reference of CUDA makes, and its end, so that the linker
 * makes the call in the place of its caller. It says at exit on standard error how many calls began and ended.
 */
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static atomic_int begun, ended;

unsigned la_version(unsigned version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)map, (void)space, (void)cookie;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name)
{
    (void)index, (void)from, (void)to;
    if (strncmp(name, "cu", 2) != 0)
        *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT;
    return symbol->st_value;
}

#ifdef __aarch64__
#define PLTENTER la_aarch64_gnu_pltenter
#define PLTEXIT la_aarch64_gnu_pltexit
typedef La_aarch64_regs registers_t;
typedef La_aarch64_retval returned_t;
#else
#define PLTENTER la_x86_64_gnu_pltenter
#define PLTEXIT la_x86_64_gnu_pltexit
typedef La_x86_64_regs registers_t;
typedef La_x86_64_retval returned_t;
#endif

Elf64_Addr PLTENTER(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, registers_t *registers, unsigned *flags, const char *name,
                    long *frame)
{
    (void)index, (void)from, (void)to, (void)registers, (void)flags, (void)name;
    begun++;
    *frame = 128; /* bytes of arguments on the stack, at most */
    return symbol->st_value;
}

unsigned PLTEXIT(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, const registers_t *registers, returned_t *returned, const char *name)
{
    (void)symbol, (void)index, (void)from, (void)to, (void)registers, (void)returned, (void)name;
    ended++;
    return 0;
}

__attribute__((destructor)) static void say(void)
{
    if (begun)
        fprintf(stderr, "audit: %d calls begun, %d ended\n", begun, ended);
}
