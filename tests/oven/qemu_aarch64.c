// Runs calls of native stages that a file describes, inside qemu: see tests/oven/qemu_aarch64.py.
//
// The file is mapped where its addresses expect it, and answers are written into it. It begins with
//   calls, where they are, places, where they are, bytes of other memory, where it is to be
// A call is (table, columns, rows, scratch, what it returned), a place is (address, function number)
// of a word that has to be the address of a function. All are int64.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef int64_t Stage(int64_t, int64_t, int64_t, int64_t);
extern Stage *const functions[];
extern Stage *const run_stages;

static void *mapped(int64_t where, int64_t size, int flags, int file) {
    void *found = mmap((void *)where, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, file, 0);
    if (found != (void *)where) {
        perror("mmap");
        exit(2);
    }
    return found;
}

int main(int count, char **arguments) {
    struct stat status;
    int file = count == 3 ? open(arguments[1], O_RDWR) : -1;
    if (file < 0 || fstat(file, &status)) {
        perror("the file of calls");
        return 2;
    }
    const int64_t *head = mapped(strtoll(arguments[2], NULL, 0), status.st_size, MAP_SHARED, file);
    mapped(head[5], head[4], MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    const int64_t *places = (const int64_t *)head[3];
    for (int64_t i = 0; i < head[2]; i++)
        *(Stage **)places[2 * i] = functions[places[2 * i + 1]];
    int64_t *call = (int64_t *)head[1];
    for (int64_t i = 0; i < head[0]; i++, call += 5)
        call[4] = run_stages(call[0], call[1], call[2], call[3]);
    return 0;
}
