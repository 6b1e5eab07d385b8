/* build: plain; run: by LD_PRELOAD
 * Starts programs under QEMU's user mode, which itself runs none: a program of this machine, or a script for one, is started in an emulator
 * of its own: ../lib/qemu-aarch64, seen from this library's folder, where root/ is what it takes for the system's root. One that gets no preloads gets
 * this.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sizes: a path, and the words before a program's own. */
enum { SIZE = PATH_MAX + 64, BEFORE = 10 };

#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

struct start {
	/* The program that the system starts. */
	char file[SIZE];
	char path[SIZE], root[SIZE], preload[SIZE], script[SIZE], bytes[SIZE];
};

static size_t count(char *const *words)
{
	size_t words_count = 0;

	while (words[words_count])
		words_count++;
	return words_count;
}

/* The file of a name, where execvp would find it. */
static void find(const char *name, char *path)
{
	const char *folders = getenv("PATH"), *end;

	snprintf(path, SIZE, "%s", name);
	if (strchr(name, '/'))
		return;
	for (folders = folders ? folders : "/bin:/usr/bin"; *folders; folders = *end ? end + 1 : end) {
		end = strchrnul(folders, ':');
		snprintf(path, SIZE, "%.*s/%s", (int)(end - folders), folders, name);
		if (!access(path, X_OK))
			return;
	}
	snprintf(path, SIZE, "%s", name);
}

/* The first bytes of a file, and zeros. */
static void head(const char *path, char *bytes)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);

	memset(bytes, 0, SIZE);
	if (file >= 0 && read(file, bytes, SIZE - 1) < 0)
		bytes[0] = 0;
	if (file >= 0)
		close(file);
}

static int has_preloads(char *const *variables)
{
	for (; *variables; variables++)
		if (!strncmp(*variables, "LD_PRELOAD=", strlen("LD_PRELOAD=")))
			return 1;
	return 0;
}

/* The file and the words by which the system starts `file`, in room for BEFORE more than those of the program. */
static void emulate(struct start *start, const char *file, char *const *given, char *const *variables, char **words)
{
	Elf64_Ehdr header;
	Dl_info own;
	size_t used = 0;
	int is_script, folder;

	memcpy(words, given, (count(given) + 1) * sizeof *given);
	snprintf(start->file, SIZE, "%s", file);
	snprintf(start->path, SIZE, "%s", file);
	head(file, start->bytes);
	is_script = sscanf(start->bytes, "#! %4095s", start->path) == 1;
	if (is_script) {
		snprintf(start->script, SIZE, "%s", file);
		head(start->path, start->bytes);
	}
	memcpy(&header, start->bytes, sizeof header);
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_machine != EM_AARCH64 || !dladdr((void *)emulate, &own))
		return;
	folder = (int)(strrchr(own.dli_fname, '/') - own.dli_fname);
	snprintf(start->file, SIZE, "%.*s/../lib/qemu-aarch64", folder, own.dli_fname);
	snprintf(start->root, SIZE, "%.*s/root", folder, own.dli_fname);
	words[used++] = start->file;
	words[used++] = "-L";
	words[used++] = start->root;
	if (!has_preloads(variables)) {
		snprintf(start->preload, SIZE, "LD_PRELOAD=%s", own.dli_fname);
		words[used++] = "-E";
		words[used++] = start->preload;
	}
	words[used++] = "-0";
	words[used++] = is_script ? start->path : given[0];
	words[used++] = start->path;
	if (is_script)
		words[used++] = start->script;
	memcpy(words + used, given + 1, count(given) * sizeof *given);
}

int execve(const char *path, char *const *given, char *const *variables)
{
	char *words[count(given) + BEFORE];
	struct start start;

	emulate(&start, path, given, variables, words);
	return REAL(execve)(start.file, words, variables);
}

int execv(const char *path, char *const *given)
{
	return execve(path, given, environ);
}

int execvpe(const char *name, char *const *given, char *const *variables)
{
	char path[SIZE];

	find(name, path);
	return execve(path, given, variables);
}

int execvp(const char *name, char *const *given)
{
	return execvpe(name, given, environ);
}

int posix_spawn(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const *given,
		char *const *variables)
{
	char *words[count(given) + BEFORE];
	struct start start;

	emulate(&start, path, given, variables, words);
	return REAL(posix_spawn)(process, start.file, actions, attributes, words, variables);
}

int posix_spawnp(pid_t *process, const char *name, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const *given,
		 char *const *variables)
{
	char path[SIZE];

	find(name, path);
	return posix_spawn(process, path, actions, attributes, given, variables);
}
