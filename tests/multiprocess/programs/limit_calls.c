// SPDX-License-Identifier: Apache-2.0
// limit_calls.c: for LD_PRELOAD: no call of the system moves more than LIMIT_CALLS bytes over a
// socket, as the system itself does beyond 2 GiB.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static size_t limit(void) {
  static size_t bytes = 0;
  if (bytes == 0) {
    const char* text = getenv("LIMIT_CALLS");
    bytes = text != NULL ? strtoull(text, NULL, 10) : SIZE_MAX;
  }
  return bytes;
}

static size_t at_most(size_t bytes) { return bytes < limit() ? bytes : limit(); }

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  ssize_t (*real)(int, const void*, size_t, int) = dlsym(RTLD_NEXT, "send");
  return real(fd, data, at_most(bytes), flags);
}

ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  ssize_t (*real)(int, void*, size_t, int) = dlsym(RTLD_NEXT, "recv");
  return real(fd, data, at_most(bytes), flags);
}

// Copies as many of the parts as the limit allows.
static struct msghdr shortened(const struct msghdr* message, struct iovec* parts) {
  struct msghdr result = *message;
  size_t left = limit();
  size_t count = 0;
  for (; count < message->msg_iovlen && count < IOV_MAX && left > 0; ++count) {
    parts[count] = message->msg_iov[count];
    if (parts[count].iov_len > left) parts[count].iov_len = left;
    left -= parts[count].iov_len;
  }
  result.msg_iov = parts;
  result.msg_iovlen = count;
  return result;
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  ssize_t (*real)(int, const struct msghdr*, int) = dlsym(RTLD_NEXT, "sendmsg");
  struct iovec parts[IOV_MAX];
  const struct msghdr less = shortened(message, parts);
  return real(fd, &less, flags);
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  ssize_t (*real)(int, struct msghdr*, int) = dlsym(RTLD_NEXT, "recvmsg");
  struct iovec parts[IOV_MAX];
  struct msghdr less = shortened(message, parts);
  const ssize_t count = real(fd, &less, flags);
  message->msg_controllen = less.msg_controllen;
  message->msg_flags = less.msg_flags;
  return count;
}
