// Runs inside a sandbox, started by the contract suite: actions of a command that show whether a
// promise is kept. Static: needs nothing from the image.
//
//   bytes FD every|SIZE SEED   writes these to the descriptor
//   echo                       copies standard input to standard output
//   hold MEGABYTES             prints "held" once it has them, then waits
//   count PATH                 writes growing numbers to the file until killed
//   forks                      a fork bomb
//   spin MILLISECONDS          of busy time on the clock; prints the microseconds of processor time
//   clock                      REALTIME, MONOTONIC, BOOTTIME in ns; the result of setting the clock
//   terminal                   which of 0, 1, 2 are terminals, their size, and each new size
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "odd_bytes.h"

namespace {

int write_whole(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size = write(fd, bytes.data() + done, bytes.size() - done);
    if (size <= 0) return 1;
    done += static_cast<size_t>(size);
  }
  return 0;
}

int write_bytes(int fd, const std::string& size, uint32_t seed) {
  if (size == "every") return write_whole(fd, moorage::tests::every_byte());
  return write_whole(fd, moorage::tests::odd_bytes(std::stoul(size), seed));
}

int echo() {
  char buffer[65536];
  for (;;) {
    const ssize_t size = read(0, buffer, sizeof buffer);
    if (size <= 0) return size < 0;
    if (write_whole(1, std::string(buffer, static_cast<size_t>(size))) != 0) return 1;
  }
}

int hold(size_t megabytes) {
  char* memory = static_cast<char*>(std::malloc(megabytes << 20));
  if (!memory) return 1;
  for (size_t at = 0; at < megabytes << 20; at += 4096) memory[at] = 'x';
  write_whole(1, "held\n");
  for (;;) pause();
}

int count(const char* path) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (unsigned long number = 1;; ++number) {
    char text[32];
    const int size = std::snprintf(text, sizeof text, "%020lu\n", number);
    if (pwrite(fd, text, static_cast<size_t>(size), 0) != size) return 1;
  }
}

[[noreturn]] void bomb() {
  for (;;) {
    if (fork() < 0) usleep(1000);
  }
}

int64_t now_us(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

int spin(int64_t milliseconds) {
  const int64_t end = now_us(CLOCK_MONOTONIC) + milliseconds * 1000;
  while (now_us(CLOCK_MONOTONIC) < end) {
  }
  std::printf("%ld\n", static_cast<long>(now_us(CLOCK_PROCESS_CPUTIME_ID)));
  return 0;
}

const char* answer(long result) { return result < 0 ? strerrorname_np(errno) : "ok"; }

int tell_clocks() {
  for (const clockid_t clock : {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME}) {
    timespec now{};
    clock_gettime(clock, &now);
    std::printf("%lld\n", static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  }
  // Sets the current time, so that success does no harm.
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::printf("%s\n", answer(clock_settime(CLOCK_REALTIME, &now)));
  timex change{};
  clock_adjtime(CLOCK_REALTIME, &change);
  change.modes = ADJ_FREQUENCY;
  std::printf("%s\n", answer(clock_adjtime(CLOCK_REALTIME, &change)));
  return 0;
}

void tell_size() {
  winsize size{};
  if (ioctl(0, TIOCGWINSZ, &size) != 0) std::printf("no size\n");
  std::printf("%d %d\n", size.ws_col, size.ws_row);
  std::fflush(stdout);
}

int tell_terminal() {
  sigset_t resized;
  sigemptyset(&resized);
  sigaddset(&resized, SIGWINCH);
  sigprocmask(SIG_BLOCK, &resized, nullptr);
  std::printf("%d%d%d\n", isatty(0), isatty(1), isatty(2));
  for (;;) {
    tell_size();
    int signal = 0;
    sigwait(&resized, &signal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "bytes" && argc > 4) {
    return write_bytes(std::atoi(argv[2]), argv[3], static_cast<uint32_t>(std::atol(argv[4])));
  }
  if (what == "echo") return echo();
  if (what == "hold" && argc > 2) return hold(std::stoul(argv[2]));
  if (what == "count" && argc > 2) return count(argv[2]);
  if (what == "forks") bomb();
  if (what == "spin" && argc > 2) return spin(std::stol(argv[2]));
  if (what == "clock") return tell_clocks();
  if (what == "terminal") return tell_terminal();
  return 2;
}
