/*
 * Sequences of calls that programs draw from seeds: numbers, a checksum of all that is seen, lines for the steps, threads, and the loop
 * over the seeds. Include after check.h or hip.h.
 *
 * In a sequence each thread has a part, with draws and a checksum of its own; mostly there is one thread.
 */
#ifndef P2PSHIM_C_TESTS_RANDOM_H
#define P2PSHIM_C_TESTS_RANDOM_H

#include <stdarg.h>

enum { MOST_PARTS = 4 };

struct part {
    unsigned seed;
    int number;
    bool is_alone;       /* no other thread has a part */
    uint64_t state, sum; /* of the draws; of what was seen */
    int calls;           /* that were made, if the program counts them */
    int last;            /* what the runtime's last error should be, if the program looks at it */
    bool wrong, last_wrong;
    FILE *log; /* or NULL */
    char *text;
    size_t length;
};

static struct part parts[MOST_PARTS];
static int part_count = 1;
static _Thread_local struct part *mine = parts;
static pthread_barrier_t all_parts; /* where they meet */

/* ---- draws ---- */

static inline uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 to below - 1. */
static inline unsigned draw_from(uint64_t *state, unsigned below)
{
    return (unsigned)(next(state) % below);
}

static inline unsigned draw(unsigned below)
{
    return draw_from(&mine->state, below);
}

#define ONE_OF(array) ((array)[draw(sizeof(array) / sizeof *(array))])

static inline void draw_bytes(unsigned char *bytes, size_t count)
{
    uint64_t state = next(&mine->state);
    for (size_t at = 0; at < count; at += sizeof state) {
        uint64_t word = next(&state);
        memcpy(bytes + at, &word, count - at < sizeof word ? count - at : sizeof word);
    }
}

/* ---- what is seen ---- */

static inline void fold(uint64_t value)
{
    mine->sum = (mine->sum ^ value) * 0x100000001b3u;
}

static inline void fold_bytes(const unsigned char *bytes, size_t count)
{
    uint64_t word;
    for (; count >= sizeof word; count -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        fold(word);
    }
    for (; count > 0; count--)
        fold(*bytes++);
}

__attribute__((format(printf, 1, 2))) static inline void note(const char *format, ...)
{
    va_list arguments;
    if (!mine->log)
        return;
    va_start(arguments, format);
    vfprintf(mine->log, format, arguments);
    va_end(arguments);
}

/* Takes a code into the sum. */
static inline int answer(int code)
{
    fold((uint64_t)code + 1);
    note(" = %d", code);
    return code;
}

static inline void is_wrong(const char *what)
{
    mine->wrong = true;
    note(" WRONG (%s)", what);
}

/* ---- sequences ---- */

struct program {
    unsigned one_in; /* one sequence of so many has threads, as many as there may be; 0: none has */
    /* Called for each part: `begin` and `end` by the main thread, `take` by the part's own, if there are several; each may be NULL but `take`. */
    void (*begin)(void), (*take)(void), (*end)(void);
    void (*finish)(void); /* once, after all */
};

static const struct program *program_taken;

static inline void *take_part(void *part)
{
    mine = part;
    program_taken->take();
    return NULL;
}

static inline void for_each_part(void (*call)(void))
{
    for (int i = 0; i < part_count && call; i++) {
        mine = &parts[i];
        call();
    }
    mine = parts;
}

static inline void begin_parts(const struct program *program, unsigned seed, bool shows_steps)
{
    part_count = program->one_in && seed % program->one_in == program->one_in - 1 ? MOST_PARTS : 1;
    pthread_barrier_init(&all_parts, NULL, (unsigned)part_count);
    for (int i = 0; i < part_count; i++) {
        parts[i] = (struct part){.seed = seed, .number = i, .is_alone = part_count == 1, .sum = 0xcbf29ce484222325u};
        parts[i].state = (uint64_t)seed << 8 | (unsigned)i;
        /* A program that crashes has shown its steps, if it has one thread. */
        if (shows_steps)
            REQUIRE((parts[i].log = part_count == 1 ? stdout : open_memstream(&parts[i].text, &parts[i].length)));
    }
    for_each_part(program->begin);
}

static inline void end_parts(const struct program *program, unsigned seed)
{
    uint64_t sum = 0;
    int calls = 0;
    bool wrong = false, last_wrong = false;
    for_each_part(program->end);
    if (program->finish)
        program->finish();
    for (int i = 0; i < part_count; i++) {
        sum = sum * 31 + parts[i].sum;
        calls += parts[i].calls;
        wrong |= parts[i].wrong;
        last_wrong |= parts[i].last_wrong;
        if (!parts[i].log || part_count == 1)
            continue;
        fclose(parts[i].log);
        fputs(parts[i].text, stdout);
        free(parts[i].text);
    }
    printf("sequence %u: %016llx", seed, (unsigned long long)sum);
    if (calls)
        printf(", %d calls", calls);
    printf("%s%s\n", wrong ? " WRONG" : "", last_wrong ? " LAST" : "");
    fflush(stdout); /* so that a crash shows where */
}

/* The arguments are FIRST COUNT [WORD…]. */
static inline int take_sequences(int argc, char **argv, const struct program *program)
{
    REQUIRE(argc >= 3);
    program_taken = program;
    unsigned first = (unsigned)strtoul(argv[1], NULL, 10), count = (unsigned)strtoul(argv[2], NULL, 10);
    for (unsigned seed = first; seed < first + count; seed++) {
        pthread_t threads[MOST_PARTS];
        begin_parts(program, seed, has_word(argc, argv, "steps"));
        if (part_count == 1)
            program->take();
        for (int i = 0; i < part_count && part_count > 1; i++)
            REQUIRE(pthread_create(&threads[i], NULL, take_part, &parts[i]) == 0);
        for (int i = 0; i < part_count && part_count > 1; i++)
            REQUIRE(pthread_join(threads[i], NULL) == 0);
        end_parts(program, seed);
    }
    return 0;
}

#endif
