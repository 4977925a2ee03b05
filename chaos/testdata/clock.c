/* Loaded into a Redis before all else (LD_PRELOAD): the wall clock is that of
 * the system and what the file CHAOS_CLOCK holds, in microseconds. The file is
 * mapped, so that a write to it sets the clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void map(void) {
  const char *name = getenv("CHAOS_CLOCK");
  int fd = name ? open(name, O_RDONLY) : -1;
  if (fd < 0) return;
  void *p = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (p != MAP_FAILED) ahead = p;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
  struct timespec ts;
  (void)tz;
  if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts) != 0) return -1;
  int64_t us = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + (ahead ? *ahead : 0);
  tv->tv_sec = us / 1000000;
  tv->tv_usec = us % 1000000;
  return 0;
}
