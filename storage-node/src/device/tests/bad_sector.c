/* Reads that meet a bad sector: preloaded into a test, pread fails with EIO at the start of each file
 * whose inode number is the name of a file in the folder MARTLET_BAD_SECTORS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR_BYTES 4096

static int is_bad(int fd, off_t offset)
{
    const char *folder = getenv("MARTLET_BAD_SECTORS");
    struct stat file;
    char name[4096];
    if (!folder || offset >= SECTOR_BYTES || fstat(fd, &file) != 0)
        return 0;
    snprintf(name, sizeof name, "%s/%lu", folder, (unsigned long)file.st_ino);
    return access(name, F_OK) == 0;
}

ssize_t pread64(int fd, void *bytes, size_t length, off_t offset)
{
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (!next)
        next = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread64");
    if (is_bad(fd, offset)) {
        errno = EIO;
        return -1;
    }
    return next(fd, bytes, length, offset);
}

ssize_t pread(int fd, void *bytes, size_t length, off_t offset)
{
    return pread64(fd, bytes, length, offset);
}
