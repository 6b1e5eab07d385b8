/* build: -ldl; run: by LD_PRELOAD
 * Rewrites the entries of copies in the global offset tables of the program and of all its libraries: at the start, and again with the tenth and the
 * hundredth copy, since libraries come later. Its functions go on to what the first entry held, or, with REWRITES=next, to what is next for dlsym. It says
 * at the end how many copies it saw.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int copy_fn(void *, void *, void *, void *, size_t, void *, void *);

static atomic_int copies;
static void rewrite_all(void);

/* The runtime's and the driver's: each passes on all that any of them takes. */
enum { COUNT = 6 };
static const char *const names[COUNT] = {"cudaMemcpyPeer", "cudaMemcpyPeerAsync", "cudaMemcpy", "cudaMemcpyAsync", "cuMemcpyPeer", "cuMemcpyPeerAsync"};
static copy_fn *real[COUNT];

#define REPLACEMENT(i)                                                                                                   \
    static int replacement_##i(void *a, void *b, void *c, void *d, size_t e, void *f, void *g)                          \
    {                                                                                                                    \
        int copy = ++copies;                                                                                             \
        if (copy == 10 || copy == 100)                                                                                   \
            rewrite_all();                                                                                               \
        return real[i](a, b, c, d, e, f, g);                                                                             \
    }
REPLACEMENT(0)
REPLACEMENT(1)
REPLACEMENT(2)
REPLACEMENT(3)
REPLACEMENT(4)
REPLACEMENT(5)
static copy_fn *const replacements[COUNT] = {replacement_0, replacement_1, replacement_2, replacement_3, replacement_4, replacement_5};

static void rewrite(void **entry, int i)
{
    if (*entry == (void *)replacements[i])
        return;
    if (!real[i] && getenv("REWRITES"))
        *(void **)&real[i] = dlsym(RTLD_NEXT, names[i]);
    if (!real[i])
        *(void **)&real[i] = *entry;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *first = (void *)((size_t)entry & ~(page - 1));
    mprotect(first, page, PROT_READ | PROT_WRITE);
    *entry = (void *)replacements[i];
}

static void rewrite_table(ElfW(Addr) base, const ElfW(Rela) *first, size_t bytes, const ElfW(Sym) *symbols, const char *text)
{
    for (const ElfW(Rela) *at = first; at < first + bytes / sizeof *at; at++) {
        unsigned kind = ELF64_R_TYPE(at->r_info);
        if (kind == R_X86_64_JUMP_SLOT || kind == R_X86_64_GLOB_DAT)
            for (int i = 0; i < COUNT; i++)
                if (strcmp(text + symbols[ELF64_R_SYM(at->r_info)].st_name, names[i]) == 0)
                    rewrite((void **)(base + at->r_offset), i);
    }
}

static void rewrite_all(void)
{
    void *handle = dlopen(NULL, RTLD_LAZY);
    struct link_map *map = NULL;
    Dl_info own;
    if (!dladdr((void *)rewrite_all, &own) || !handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return;
    for (; map; map = map->l_next) {
        const ElfW(Sym) *symbols = NULL;
        const ElfW(Rela) *calls = NULL, *data = NULL;
        const char *text = NULL;
        size_t call_bytes = 0, data_bytes = 0;
        for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag; entry++)
            switch (entry->d_tag) {
            case DT_SYMTAB: symbols = (void *)entry->d_un.d_ptr; break;
            case DT_STRTAB: text = (void *)entry->d_un.d_ptr; break;
            case DT_JMPREL: calls = (void *)entry->d_un.d_ptr; break;
            case DT_PLTRELSZ: call_bytes = entry->d_un.d_val; break;
            case DT_RELA: data = (void *)entry->d_un.d_ptr; break;
            case DT_RELASZ: data_bytes = entry->d_un.d_val; break;
            }
        /* The vDSO's are offsets. */
        if (map->l_addr == (ElfW(Addr))own.dli_fbase || !symbols || !text || (size_t)text < map->l_addr)
            continue;
        rewrite_table(map->l_addr, calls, calls ? call_bytes : 0, symbols, text);
        rewrite_table(map->l_addr, data, data ? data_bytes : 0, symbols, text);
    }
    dlclose(handle);
}

__attribute__((constructor)) static void start(void)
{
    rewrite_all();
}

__attribute__((destructor)) static void end(void)
{
    fprintf(stderr, "rewrites: %d copies\n", copies);
}
